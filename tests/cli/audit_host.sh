#!/bin/sh
# flatout audit of hosts: by files, by a folder, this machine; exit statuses; what is no output of a command.
. "$(dirname "$0")/lib_expect.sh"

mkdir "$tmp/hosts"
cd "$tmp/hosts" || exit 1

# The variables of the cluster of 128 A100 (docs/seed-figures.md): over InfiniBand five of the six do nothing for it.
cat >env.txt <<'END'
export NCCL_SOCKET_NTHREADS=4 export NCCL_NSOCKS_PERTHREAD=4 export NCCL_BUFFSIZE=4194304
export NCCL_NET_GDR_LEVEL=5 export NCCL_IB_DISABLE=0 export NCCL_IB_GID_INDEX=3
END
printf "CA 'mlx5_0'\n\tCA type: MT4123\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 200\n\t\tLink layer: InfiniBand\n" \
	>ib.txt
A="audit --from env.txt,ib.txt"
expect 0 "Audit:  no serious finding, 4 of advice, 2 notes" $A
expect 0 "NCCL_SOCKET_NTHREADS=4 does nothing over InfiniBand" $A
expect 0 "NCCL_IB_GID_INDEX=3 does nothing over InfiniBand" $A
expect 0 "NCCL_NET_GDR_LEVEL=5 means SYS: it does not turn GPUDirect RDMA on" $A
expect 0 "NCCL_BUFFSIZE=4194304 is the default" $A
expect 0 "NCCL_IB_DISABLE=0 is the default" $A
expect 0 "nvidia-smi topo -m" $A
narrow
expect 0 '"id": "nccl-socket-only"' $A --json
# Alone, the variables show nothing about the network: nothing is said to be without effect.
expect 0 "Audit:  no serious finding, 1 of advice" audit --from env.txt
expect 0 "which transport NCCL uses between hosts" audit --from env.txt

# A serious finding makes the exit status 1; a folder is a host.
mkdir node1 node2
echo "CUDA_LAUNCH_BLOCKING=1" >node1/env
echo "max locked memory (kbytes, -l) 64" >node2/limits
expect 1 "every kernel launch waits for its kernel" audit --from node1
expect 1 "limits:1 (node2)" audit --from node1,node2

# Somebody else's files are named; without any that tells something there is no audit.
echo "training is slow, please help" >mail.txt
expect 0 "not read: mail.txt: nothing in it" $A,mail.txt
expect 2 "no file tells anything about a host" audit --from mail.txt
expect 3 "no such file" audit --from absent
expect 2 "no file is named" audit --from ","
: >empty
expect 2 "empty: empty" audit --from empty
head -c 4096 /dev/zero >zeros
expect 2 "zero bytes" audit --from zeros

# This machine, whatever it is: 0 or 1, and what was read.
"$FLATOUT_BIN" audit --json >out.json 2>&1
case $? in
0 | 1) ;;
*) echo "FAILED: this machine"; failed=1 ;;
esac
grep -q '"this machine: /proc' out.json || { echo "FAILED: this machine is not named"; failed=1; }
exit $failed
