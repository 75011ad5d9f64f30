#include "launcher/doctor/doctor.h"

/* Bounds are longer than those of the commands that a check runs. */
const struct check doctor_checks[] = {
	{ "agent", 12, false, "muster-agent is there and starts", check_agent },
	{ "pmix", 10, false, "the version of PMIx", check_pmix },
	{ "blas", 10, false, "OpenBLAS, for products on the CPU", check_blas },
	{ "cuda-agent", 10, false, "libmuster-cuda.so beside the agent loads", check_cuda },
	{ "driver", 10, false, "CUDA's driver, and whether it is new enough for the CUDA that muster was built with",
	  check_driver },
	{ "libraries", 15, false, "cublasLt and NCCL, with versions", check_libraries },
	{ "gpus", 15, false, "each GPU: answers, memory errors, clocks, NVLinks beside its siblings', PCIe, who uses it, free "
	  "memory", check_gpus },
	{ "near", 15, false, "how near each GPU is to a network adapter", check_near },
	{ "adapters", 10, false, "network adapters that are down", check_adapters },
	{ "name", 10, false, "this host's name resolves", check_name },
	{ "limits", 10, false, "open files, locked memory", check_limits },
	{ "cpu", 10, false, "cores that this process may use, CPU time of its cgroup, governor", check_cpu },
	{ "memory", 10, false, "memory that is available, also beside the job's", check_memory },
	{ "shm", 10, false, "/dev/shm, which NCCL uses", check_shm },
	{ "disk", 10, false, "room in the folders of runs and checkpoints, and whether they can be written", check_disk },
	{ "munge", 15, false, "credentials, where Slurm uses MUNGE", check_munge },
	{ "data", 15, false, "the job's data can be read", check_data },
	{ "slurm", 25, true, "Slurm's controller answers, its version, its PMIx plugin", check_slurm },
	{ "job", 10, true, "the job can be planned on this machine", check_job },
	{ NULL, 0, false, NULL, NULL },
};
