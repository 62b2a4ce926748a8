"""Tensors only: linearisations, metrics, curves and neighbours."""
