"""The choices that settings have, declared once for plan, configuration, command line and estimator."""

from __future__ import annotations

from typing import Literal

Method = Literal["billboard", "trees"]
EdgeOwner = Literal["sender", "reader"]
Sampler = Literal["stable", "paper"]
Accountant = Literal["pair", "paper"]
Batches = Literal["poisson", "fixed"]
Clipping = Literal["normalised", "flat", "groups", "percentile"]
Unit = Literal["node", "person"]
Noise = Literal["common", "per-layer"]
Model = Literal["gcn", "gin", "gat", "mlp"]
Optimizer = Literal["adam", "sgd"]
Schedule = Literal["cosine", "constant"]
Activation = Literal["tanh", "relu"]
Setting = Literal["transductive", "inductive"]
Numbers = Literal["private", "declared", "as-is"]
Device = Literal["auto", "cpu", "cuda"]
Engine = Literal["auto", "memory", "duckdb", "spark"]
Task = Literal["auto", "classes", "binary", "labels", "number"]
