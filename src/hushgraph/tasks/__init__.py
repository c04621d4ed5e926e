"""What is asked of a node: width of outputs, ballot, loss, prediction and figures. A task is one file."""
