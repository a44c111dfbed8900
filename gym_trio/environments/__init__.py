"""The built-in environments, one file each; `IMPLEMENTATIONS` is the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["IMPLEMENTATIONS"]

# Implementation name in a configuration → where its class is; imported when a block names it.
IMPLEMENTATIONS: Mapping[str, str] = MappingProxyType(
    {
        "arc_agi": "gym_trio.environments.arc_agi:ArcAgi",
        "blackjack": "gym_trio.environments.blackjack:Blackjack",
        "bunsenbench_chemistry_mcq": "gym_trio.environments.bunsenbench_chemistry_mcq:BunsenBenchChemistry",
        "calendar": "gym_trio.environments.calendar:Calendar",
        "citation_if": "gym_trio.environments.citation_if:CitationIf",
        "equivalence_rule": "gym_trio.environments.equivalence_rule:EquivalenceRule",
        "example_multi_step": "gym_trio.environments.example_multi_step:MultiStep",
        "example_multi_turn_gymnasium": "gym_trio.environments.example_multi_turn_gymnasium:MultiTurn",
        "example_session_state_mgmt": "gym_trio.environments.example_session_state_mgmt:SessionStateManagement",
        "example_single_tool_call": "gym_trio.environments.example_single_tool_call:SingleToolCall",
        "example_tool_call_multireward": "gym_trio.environments.example_tool_call_multireward:ToolCallMultiReward",
        "format_verification": "gym_trio.environments.format_verification:FormatVerification",
        "gpqa_diamond": "gym_trio.environments.gpqa_diamond:GpqaDiamond",
        "graphwalks": "gym_trio.environments.graphwalks:GraphWalks",
        "gymnasium": "gym_trio.environments.gymnasium:Gymnasium",
        "hotpotqa_qa": "gym_trio.environments.hotpotqa_qa:HotpotQa",
        "human_eval": "gym_trio.environments.human_eval:HumanEval",
        "indirect_prompt_injection": "gym_trio.environments.indirect_prompt_injection:IndirectPromptInjection",
        "lc_niah": "gym_trio.environments.lc_niah:LcNiah",
        "math": "gym_trio.environments.math:Math",
        "math_advanced_calculations": "gym_trio.environments.math_advanced_calculations:MathAdvancedCalculations",
        "mcqa": "gym_trio.environments.mcqa:MultipleChoice",
        "mrcr": "gym_trio.environments.mrcr:Mrcr",
        "openenv": "gym_trio.environments.openenv:OpenEnv",
        "proof_genselect": "gym_trio.environments.proof_genselect:ProofGenSelect",
        "ragtruth": "gym_trio.environments.ragtruth:RagTruth",
        "reasoning_gym": "gym_trio.environments.reasoning_gym:ReasoningGym",
        "ruler": "gym_trio.environments.ruler:Ruler",
        "ruler2": "gym_trio.environments.ruler2:Ruler2",
        "single_step_tool_use_with_argument_comparison": (
            "gym_trio.environments.single_step_tool_use_with_argument_comparison:SingleStepToolUse"
        ),
        "spartqa": "gym_trio.environments.spartqa:SpartQa",
        "string_match": "gym_trio.environments.string_match:StringMatch",
        "structeval": "gym_trio.environments.structeval:StructEval",
        "structured_outputs": "gym_trio.environments.structured_outputs:StructuredOutputs",
        "terminal_multi_harness": "gym_trio.environments.terminal_multi_harness:TerminalMultiHarness",
        "textarena": "gym_trio.environments.textarena:TextArena",
        "verifiers": "gym_trio.environments.verifiers:Verifiers",
        "wordle": "gym_trio.environments.wordle:Wordle",
        "workplace_assistant": "gym_trio.environments.workplace_assistant:WorkplaceAssistant",
        "xlam_fc": "gym_trio.environments.xlam_fc:XlamFunctionCalling",
    }
)
