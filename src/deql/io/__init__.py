"""Files: durable writes, arrays with a checksum, model files, journals."""
