"""Clusters as pods, through the TFCluster resource and its operator."""
