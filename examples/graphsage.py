"""Trains GraphSAGE (Hamilton et al., 2017): python examples/graphsage.py --data pubmed"""

import graph_training

if __name__ == "__main__":
    graph_training.main()
