#include "launcher/doctor/doctor.h"

/* Each check's time limit is longer than those of the commands that the check runs. */
/* clang-format off */
const struct check doctor_checks[] = {
	{ "agent", 12, false, "muster-agent exists and starts", doctor_check_agent },
	{ "pmix", 10, false, "the version of PMIx", doctor_check_pmix },
	{ "blas", 10, false, "the BLAS library for products on the CPU", doctor_check_blas },
	{ "debugger", 10, false, "gdb or eu-stack, and py-spy for Python, which name the functions of ranks that hang; none is needed", doctor_check_debugger },
	{ "cuda-agent", 10, false, "libmuster-cuda.so can be loaded", doctor_check_cuda },
	{ "driver", 10, false, "the CUDA driver supports the CUDA that muster was built with",
	  doctor_check_driver },
	{ "libraries", 15, false, "the versions of cublasLt, NCCL and cuDNN", doctor_check_libraries },
	{ "gpus", 15, false, "each GPU: whether it answers, memory errors, clocks, NVLinks, PCIe, other programs, free memory", doctor_check_gpus },
	{ "near", 15, false, "the distance of each GPU to a network adapter", doctor_check_near },
	{ "adapters", 10, false, "network adapters that are down", doctor_check_adapters },
	{ "name", 10, false, "whether this host's name is resolved quickly, to an address of its own", doctor_check_name },
	{ "limits", 10, false, "limits of open files, file sizes, address space and locked memory", doctor_check_limits },
	{ "cpu", 10, false, "cores that this process may use, CPU time of its control group, governor", doctor_check_cpu },
	{ "memory", 10, false, "available memory, and what the job needs", doctor_check_memory },
	{ "shm", 10, false, "/dev/shm, which NCCL uses", doctor_check_shm },
	{ "disk", 10, false, "whether the folders of runs and checkpoints can be written, and have space", doctor_check_disk },
	{ "munge", 15, false, "whether MUNGE credentials can be made, if Slurm uses them", doctor_check_munge },
	{ "data", 15, false, "whether the job's data can be read", doctor_check_data },
	{ "names", 20, true, "whether the addresses of the allocation's nodes are resolved quickly, to addresses that other nodes can use", doctor_check_names },
	{ "slurm", 25, true, "whether Slurm's controller answers, its version, its PMIx plugin", doctor_check_slurm },
	{ "job", 10, true, "whether the job can be planned on this machine", doctor_check_job },
	{ NULL, 0, false, NULL, NULL },
};
/* clang-format on */
