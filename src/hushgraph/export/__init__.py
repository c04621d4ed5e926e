"""A released model in formats that other programs read: ONNX, Parquet and JSON."""
