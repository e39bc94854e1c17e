"""What is seen of a training: windows of metrics, figures of tables in TensorBoard, traces of steps."""
