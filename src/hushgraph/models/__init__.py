"""Graph neural networks on blocks of reads: GCN, GIN, GAT and MLP, on CPU and GPU."""
