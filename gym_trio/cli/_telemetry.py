"""Setting OpenTelemetry up, when the configuration asks for it."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator
from typing import IO, Any, Literal

import attrs

from ..config import GymConfig, InvalidSetting, structure
from ..errors import MissingExtraError, UsageError

__all__ = ["TelemetrySettings", "check_telemetry", "open_telemetry"]


@attrs.frozen(kw_only=True)
class TelemetrySettings:
    """The run key ``telemetry``.

    ``exporter: otlp`` sends to an OpenTelemetry collector (``endpoint``, by default http://localhost:4318);
    ``exporter: file`` writes one JSON document per span and per set of metrics to ``path``.
    """

    exporter: Literal["otlp", "file"] = "otlp"
    endpoint: str = "http://localhost:4318"
    path: str | None = attrs.field(default=None)
    service_name: str = "gym_trio"

    @path.validator
    def _check_path(self, attribute: attrs.Attribute[Any], value: str | None) -> None:
        if self.exporter == "file" and not value:
            raise InvalidSetting("path", "must name the file to write, because exporter is 'file'")


def check_telemetry(config: GymConfig) -> None:
    """**Errors**: `ConfigError` for a wrong key of the run key ``telemetry``; `UsageError` for a file that cannot be
    written.
    """
    if config.run.telemetry:
        settings = structure(TelemetrySettings, config.run.telemetry, key="telemetry")
        if settings.exporter == "file":
            _open_file(settings).close()


def _open_file(settings: TelemetrySettings) -> IO[str]:
    path = pathlib.Path(settings.path or "")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Several processes may write it: each document is one write at the end of the file.
        return path.open("a", buffering=1 << 20)
    except OSError as error:
        raise UsageError(f"telemetry.path: {path}: cannot be written ({error.strerror})") from None


@contextlib.contextmanager
def open_telemetry(config: GymConfig) -> Iterator[None]:
    """Spans and metrics of this process go where the run key ``telemetry`` says, for the length of the block.

    What is still to be sent is sent at its end.

    **Errors**: `ConfigError` for a wrong key; `MissingExtraError` without the ``telemetry`` extra.
    """
    if not config.run.telemetry:
        yield
        return
    settings = structure(TelemetrySettings, config.run.telemetry, key="telemetry")
    try:
        from opentelemetry import metrics, trace
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise MissingExtraError("telemetry", extra="telemetry") from None
    with contextlib.ExitStack() as stack:
        span_exporter, metric_exporter = _exporters(settings, stack)
        resource = Resource.create({"service.name": settings.service_name})
        tracing = TracerProvider(resource=resource)
        tracing.add_span_processor(BatchSpanProcessor(span_exporter))
        metering = MeterProvider([PeriodicExportingMetricReader(metric_exporter)], resource=resource)
        trace.set_tracer_provider(tracing)
        metrics.set_meter_provider(metering)
        try:
            yield
        finally:
            tracing.shutdown()
            metering.shutdown()


def _exporters(settings: TelemetrySettings, stack: contextlib.ExitStack) -> tuple[Any, Any]:
    if settings.exporter == "file":
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        file = stack.enter_context(_open_file(settings))
        as_line = _one_line
        return ConsoleSpanExporter(out=file, formatter=as_line), ConsoleMetricExporter(out=file, formatter=as_line)
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise MissingExtraError("sending telemetry to a collector", extra="telemetry") from None
    base = settings.endpoint.rstrip("/")
    return OTLPSpanExporter(endpoint=f"{base}/v1/traces"), OTLPMetricExporter(endpoint=f"{base}/v1/metrics")


def _one_line(document: Any) -> str:
    return str(document.to_json(indent=None)) + "\n"
