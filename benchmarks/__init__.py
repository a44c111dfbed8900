"""Is gym_trio worth switching to? ``python -m benchmarks`` answers on the reader's own machine.

================  =====================================================================================
``_catalogue``    the benchmarks: their sides, and which side is compared with which, and the target;
                  ``_whole``: those of a whole program
``_records``      `Benchmark`, `Side`, `Comparison`, `Run`, `Result`
``_processes``    one side as a process of its own, measured from outside
``_rounds``       sides in alternation, medians, ratios, and when a ratio is refused
``_peers``        the virtual environments of those that gym_trio is compared with
``_report``       text, JSON, the README's table; ``_plot``: the SVG
``_profile``      ``--profile``: where one side spends its time
``_counts``       ``--check``: exact counts against those in ``counts.json``
``sides/``        the scripts, each in plain words what a user would write
================  =====================================================================================
"""
