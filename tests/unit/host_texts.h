/* Texts in the form of the commands, of a healthy host with eight H100: what an audit of hosts is tested on. The form
 * was taken from public outputs (nvidia-smi 550 to 580, NCCL 2.21, ibstat of rdma-core); the figures are made up. */
#ifndef HOST_TEXTS_H
#define HOST_TEXTS_H

#define SMI_QUERY_HEAD                                                           \
	"==============NVSMI LOG==============\n\n"                              \
	"Timestamp                                 : Mon Nov 23 09:12:01 2026\n" \
	"Driver Version                            : 570.148.08\n"               \
	"CUDA Version                              : 12.8\n\n"                   \
	"Attached GPUs                             : 8\n"
/* %s: the bus */
#define SMI_QUERY_GPU                                                         \
	"GPU 00000000:%s:00.0\n"                                              \
	"    Product Name                          : NVIDIA H100 80GB HBM3\n" \
	"    Product Architecture                  : Hopper\n"                \
	"    Persistence Mode                      : Enabled\n"               \
	"    MIG Mode\n"                                                      \
	"        Current                           : Disabled\n"              \
	"        Pending                           : Disabled\n"              \
	"    GPU Operation Mode\n"                                            \
	"        Current                           : N/A\n"                   \
	"    PCI\n"                                                           \
	"        Bus                               : 0x1B\n"                  \
	"        GPU Link Info\n"                                             \
	"            PCIe Generation\n"                                       \
	"                Max                       : 5\n"                     \
	"                Current                   : 5\n"                     \
	"                Device Current            : 5\n"                     \
	"                Host Max                  : 5\n"                     \
	"            Link Width\n"                                            \
	"                Max                       : 16x\n"                   \
	"                Current                   : 16x\n"                   \
	"    Performance State                     : P0\n"                    \
	"    Clocks Event Reasons\n"                                          \
	"        Idle                              : Not Active\n"            \
	"        Applications Clocks Setting       : Not Active\n"            \
	"        SW Power Cap                      : Not Active\n"            \
	"        HW Slowdown                       : Not Active\n"            \
	"            HW Thermal Slowdown           : Not Active\n"            \
	"            HW Power Brake Slowdown       : Not Active\n"            \
	"        Sync Boost                        : Not Active\n"            \
	"        SW Thermal Slowdown               : Not Active\n"            \
	"    Clocks Event Reasons Counters\n"                                 \
	"        SW Power Capping                  : 12234991553 us\n"        \
	"        SW Thermal Slowdown               : 0 us\n"                  \
	"        HW Thermal Slowdown               : 0 us\n"                  \
	"        HW Power Braking                  : 0 us\n"                  \
	"    FB Memory Usage\n"                                               \
	"        Total                             : 81559 MiB\n"             \
	"    Compute Mode                          : Default\n"               \
	"    Utilization\n"                                                   \
	"        Gpu                               : 98 %%\n"                 \
	"        Memory                            : 41 %%\n"                 \
	"    ECC Mode\n"                                                      \
	"        Current                           : Enabled\n"               \
	"        Pending                           : Enabled\n"               \
	"    ECC Errors\n"                                                    \
	"        Volatile\n"                                                  \
	"            SRAM Correctable              : 0\n"                     \
	"            SRAM Uncorrectable Parity     : 0\n"                     \
	"            SRAM Uncorrectable SEC-DED    : 0\n"                     \
	"            DRAM Correctable              : 12\n"                    \
	"            DRAM Uncorrectable            : 0\n"                     \
	"        Aggregate\n"                                                 \
	"            SRAM Uncorrectable Parity     : 3\n"                     \
	"            DRAM Uncorrectable            : 5\n"                     \
	"    Retired Pages\n"                                                 \
	"        Pending Page Blacklist            : N/A\n"                   \
	"    Remapped Rows\n"                                                 \
	"        Correctable Error                 : 0\n"                     \
	"        Uncorrectable Error               : 0\n"                     \
	"        Pending                           : No\n"                    \
	"        Remapping Failure Occurred        : No\n"                    \
	"    Temperature\n"                                                   \
	"        GPU Current Temp                  : 61 C\n"                  \
	"    GPU Power Readings\n"                                            \
	"        Power Draw                        : 612.41 W\n"              \
	"        Current Power Limit               : 700.00 W\n"              \
	"        Requested Power Limit             : 700.00 W\n"              \
	"        Default Power Limit               : 700.00 W\n"              \
	"        Max Power Limit                   : 700.00 W\n"              \
	"    Module Power Readings\n"                                         \
	"        Current Power Limit               : 400.00 W\n"              \
	"        Default Power Limit               : 900.00 W\n"              \
	"    Clocks\n"                                                        \
	"        Graphics                          : 1755 MHz\n"              \
	"        SM                                : 1755 MHz\n"              \
	"    Applications Clocks\n"                                           \
	"        Graphics                          : 1980 MHz\n"              \
	"        Memory                            : 2619 MHz\n"              \
	"    Default Applications Clocks\n"                                   \
	"        Graphics                          : 1980 MHz\n"              \
	"        Memory                            : 2619 MHz\n"              \
	"    Max Clocks\n"                                                    \
	"        Graphics                          : 1980 MHz\n"              \
	"        SM                                : 1980 MHz\n"              \
	"    Fabric\n"                                                        \
	"        State                             : Completed\n"             \
	"        Status                            : Success\n"               \
	"    Processes                             : None\n\n"

static const char smi_table[] =
	"Mon Nov 23 09:12:01 2026\n"
	"+-----------------------------------------------------------------------------------------+\n"
	"| NVIDIA-SMI 570.148.08             Driver Version: 570.148.08     CUDA Version: 12.8     |\n"
	"|-----------------------------------------+------------------------+----------------------+\n"
	"| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
	"| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n"
	"|                                         |                        |               MIG M. |\n"
	"|=========================================+========================+======================|\n"
	"|   0  NVIDIA H100 80GB HBM3          On  |   00000000:1B:00.0 Off |                    0 |\n"
	"| N/A   28C    P0             73W /  700W |       0MiB /  81559MiB |      0%      Default |\n"
	"|                                         |                        |             Disabled |\n"
	"+-----------------------------------------+------------------------+----------------------+\n"
	"|   1  NVIDIA H100 80GB HBM3          On  |   00000000:43:00.0 Off |                    0 |\n"
	"| N/A   29C    P0             69W /  700W |       0MiB /  81559MiB |      0%      Default |\n"
	"|                                         |                        |             Disabled |\n"
	"+-----------------------------------------+------------------------+----------------------+\n"
	"\n"
	"+-----------------------------------------------------------------------------------------+\n"
	"| Processes:                                                                              |\n"
	"|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |\n"
	"|=========================================================================================|\n"
	"|  No running processes found                                                             |\n"
	"+-----------------------------------------------------------------------------------------+\n";

/* Four GPUs, two adapters of the network and one for storage. */
static const char topo[] =
	"\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
	"GPU0\t X \tNV18\tNV18\tNV18\tPIX\tSYS\tNODE\t0-55,112-167\t0\t\tN/A\n"
	"GPU1\tNV18\t X \tNV18\tNV18\tPXB\tSYS\tNODE\t0-55,112-167\t0\t\tN/A\n"
	"GPU2\tNV18\tNV18\t X \tNV18\tSYS\tPIX\tSYS\t56-111,168-223\t1\t\tN/A\n"
	"GPU3\tNV18\tNV18\tNV18\t X \tSYS\tPXB\tSYS\t56-111,168-223\t1\t\tN/A\n"
	"NIC0\tPIX\tPXB\tSYS\tSYS\t X \tSYS\tNODE\t\t\t\n"
	"NIC1\tSYS\tSYS\tPIX\tPXB\tSYS\t X \tSYS\t\t\t\n"
	"NIC2\tNODE\tNODE\tSYS\tSYS\tNODE\tSYS\t X \t\t\t\n"
	"\n"
	"Legend:\n"
	"\n"
	"  X    = Self\n"
	"  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)\n"
	"  NV#  = Connection traversing a bonded set of # NVLinks\n"
	"\n"
	"NIC Legend:\n"
	"\n"
	"  NIC0: mlx5_0\n"
	"  NIC1: mlx5_3\n"
	"  NIC2: mlx5_4\n";

#define LINKS_17                                                                                               \
	"\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n\t Link 2: 26.562 GB/s\n\t Link 3: 26.562 GB/s\n"     \
	"\t Link 4: 26.562 GB/s\n\t Link 5: 26.562 GB/s\n\t Link 6: 26.562 GB/s\n\t Link 7: 26.562 GB/s\n"     \
	"\t Link 8: 26.562 GB/s\n\t Link 9: 26.562 GB/s\n\t Link 10: 26.562 GB/s\n\t Link 11: 26.562 GB/s\n"   \
	"\t Link 12: 26.562 GB/s\n\t Link 13: 26.562 GB/s\n\t Link 14: 26.562 GB/s\n\t Link 15: 26.562 GB/s\n" \
	"\t Link 16: 26.562 GB/s\n"
static const char nvlink[] = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-3b1f3d52-2b2f-4f0d-8c1c-6e0f9a1f4b6d)\n" LINKS_17
			     "\t Link 17: 26.562 GB/s\n"
			     "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-7c2e1baf-8d3f-4a4d-a8ae-67d7e88232ef)\n" LINKS_17
			     "\t Link 17: 26.562 GB/s\n";

#define CA(name, state, physical, rate, layer) \
	"CA '" name "'\n"                      \
	"\tCA type: MT4129\n"                  \
	"\tNumber of ports: 1\n"               \
	"\tFirmware version: 28.39.1002\n"     \
	"\tPort 1:\n"                          \
	"\t\tState: " state "\n"               \
	"\t\tPhysical state: " physical "\n"   \
	"\t\tRate: " rate "\n"                 \
	"\t\tBase lid: 12\n"                   \
	"\t\tSM lid: 1\n"                      \
	"\t\tPort GUID: 0xa288c2fffee3142a\n"  \
	"\t\tLink layer: " layer "\n"
static const char ibstat[] = CA("mlx5_0", "Active", "LinkUp", "400", "InfiniBand")
	CA("mlx5_3", "Active", "LinkUp", "400", "InfiniBand") CA("mlx5_4", "Active", "LinkUp", "200", "InfiniBand");

static const char lscpu[] = "Architecture:                       x86_64\n"
			    "CPU(s):                             224\n"
			    "On-line CPU(s) list:                0-223\n"
			    "Vendor ID:                          GenuineIntel\n"
			    "Model name:                         Intel(R) Xeon(R) Platinum 8480C\n"
			    "Thread(s) per core:                 2\n"
			    "Core(s) per socket:                 56\n"
			    "Socket(s):                          2\n"
			    "NUMA node(s):                       2\n"
			    "NUMA node0 CPU(s):                  0-55,112-167\n";

static const char cpupower[] = "analyzing CPU 0:\n"
			       "  driver: intel_pstate\n"
			       "  hardware limits: 800 MHz - 3.80 GHz\n"
			       "  current policy: frequency should be within 800 MHz and 3.80 GHz.\n"
			       "                  The governor \"performance\" may decide which speed to use\n"
			       "  boost state support:\n"
			       "    Supported: yes\n"
			       "    Active: yes\n";

static const char env[] = "PATH=/usr/local/bin:/usr/bin\n"
			  "HOSTNAME=node7\n"
			  "NCCL_IB_HCA=mlx5_0,mlx5_3\n"
			  "OMP_NUM_THREADS=8\n"
			  "TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n"
			  "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n";

static const char nccl_log[] =
	"node7:4242:4242 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.7<0>\n"
	"node7:4242:4242 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"
	"node7:4242:4300 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/IB [RO]; OOB eth0:10.0.0.7<0>\n"
	"node7:4242:4300 [0] NCCL INFO Using network IB\n"
	"node7:4242:4300 [0] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'\n"
	"node7:4242:4300 [0] NCCL INFO Channel 00/0 : 9[1] -> 0[0] [receive] via NET/IB/0/GDRDMA\n";

static const char limits[] = "core file size              (blocks, -c) 0\n"
			     "max locked memory           (kbytes, -l) unlimited\n"
			     "open files                          (-n) 1048576\n";

static const char lsmod[] = "Module                  Size  Used by\n"
			    "nvidia_peermem         16384  0\n"
			    "nvidia_uvm           2121728  4\n"
			    "mlx5_ib               466944  0\n";

static const char meminfo[] = "MemTotal:       2113461052 kB\n"
			      "MemFree:        1983461052 kB\n"
			      "HugePages_Total:       0\n"
			      "Hugepagesize:       2048 kB\n";

static const char shm[] = "Filesystem     1K-blocks  Used Available Use% Mounted on\n"
			  "tmpfs           67108864     0  67108864   0% /dev/shm\n";

static const char cmdline[] = "BOOT_IMAGE=/boot/vmlinuz-5.15.0 root=UUID=1 ro intel_iommu=on iommu=pt quiet\n";
static const char lspci[] = "\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir-\n";
static const char pip[] = "numpy==1.26.4\nnvidia-cublas-cu12==12.4.5.8\nnvidia-nccl-cu12==2.21.5\ntorch==2.6.0\n";
static const char thp[] = "always [madvise] never\n";
static const char affinity[] = "pid 4242's current affinity list: 0-27\n";
static const char vboost[] = "| GPU    Slider    Max    Current |\n|   0    vboost    4      1       |\n";

#endif
