"""Hyper-parameters for TensorBoard's table of runs, in the form that its plugin reads.

Not the plugin's own functions: those import TensorFlow.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

METRICS = ("eval/return_mean", "eval/return_best", "collect/return_mean")
"""The columns beside the settings."""


def session_values(settings: Mapping[str, bool | float | str]) -> list[Any]:
    """Return the values of a summary that say which run this is: what may differ, what is measured, and what it has."""
    from tensorboard.plugins.hparams import metadata

    api_pb2, plugin_data_pb2 = (_made_by_protobuf(f"tensorboard.plugins.hparams.{name}_pb2") for name in ("api", "plugin_data"))
    infos = [api_pb2.HParamInfo(name=name, type=_type(api_pb2, value)) for name, value in settings.items()]
    metrics = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)) for tag in METRICS]
    experiment = api_pb2.Experiment(hparam_infos=infos, metric_infos=metrics)
    session = plugin_data_pb2.SessionStartInfo()
    for name, value in settings.items():
        if isinstance(value, bool):
            session.hparams[name].bool_value = value
        elif isinstance(value, str):
            session.hparams[name].string_value = value
        else:
            session.hparams[name].number_value = float(value)
    return [
        _value(metadata.EXPERIMENT_TAG, plugin_data_pb2.HParamsPluginData(experiment=experiment)),
        _value(metadata.SESSION_START_INFO_TAG, plugin_data_pb2.HParamsPluginData(session_start_info=session)),
    ]


def _made_by_protobuf(name: str) -> Any:
    """A module whose classes are made when it is imported, and known to no type checker."""
    return importlib.import_module(name)


def _type(api: Any, value: object) -> Any:
    if isinstance(value, bool):
        return api.DATA_TYPE_BOOL
    return api.DATA_TYPE_STRING if isinstance(value, str) else api.DATA_TYPE_FLOAT64


def _value(tag: str, content: Any) -> Any:
    from tensorboard.plugins.hparams import metadata

    value = _made_by_protobuf("tensorboard.compat.proto.summary_pb2").Summary.Value
    return value(tag=tag, metadata=metadata.create_summary_metadata(content), tensor=metadata.NULL_TENSOR)
