"""Observes training: windows of metrics, figures of tables in TensorBoard, traces of steps."""
