#!/bin/sh
# Eight ranks on two hosts that ssh reaches without a password. The launcher stays until the job ends, says in one line
# what ended it, and starts it again up to three times.
exec flatout launch -n 8 --hosts=node1:4,node2:4 --restarts=3 --mpi-args="--mca btl_tcp_if_include eth0" -- train run.yaml
