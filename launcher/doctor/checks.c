#include "launcher/doctor/doctor.h"

/* Each check's time limit is longer than those of the commands that the check runs. */
/* clang-format off */
const struct check doctor_checks[] = {
	{ "agent", 12, false, "muster-agent is there and starts", doctor_check_agent },
	{ "pmix", 10, false, "the version of PMIx", doctor_check_pmix },
	{ "blas", 10, false, "OpenBLAS, for products on the CPU", doctor_check_blas },
	{ "cuda-agent", 10, false, "libmuster-cuda.so beside the agent loads", doctor_check_cuda },
	{ "driver", 10, false, "CUDA's driver, and whether it is new enough for the CUDA that muster was built with",
	  doctor_check_driver },
	{ "libraries", 15, false, "cublasLt and NCCL, with versions", doctor_check_libraries },
	{ "gpus", 15, false, "each GPU: answers, memory errors, clocks, NVLinks beside its siblings', PCIe, who uses it, free "
	  "memory", doctor_check_gpus },
	{ "near", 15, false, "how near each GPU is to a network adapter", doctor_check_near },
	{ "adapters", 10, false, "network adapters that are down", doctor_check_adapters },
	{ "name", 10, false, "this host's name resolves", doctor_check_name },
	{ "limits", 10, false, "open files, locked memory", doctor_check_limits },
	{ "cpu", 10, false, "cores that this process may use, CPU time of its cgroup, governor", doctor_check_cpu },
	{ "memory", 10, false, "memory that is available, also beside the job's", doctor_check_memory },
	{ "shm", 10, false, "/dev/shm, which NCCL uses", doctor_check_shm },
	{ "disk", 10, false, "room in the folders of runs and checkpoints, and whether they can be written", doctor_check_disk },
	{ "munge", 15, false, "credentials, where Slurm uses MUNGE", doctor_check_munge },
	{ "data", 15, false, "the job's data can be read", doctor_check_data },
	{ "slurm", 25, true, "Slurm's controller answers, its version, its PMIx plugin", doctor_check_slurm },
	{ "job", 10, true, "the job can be planned on this machine", doctor_check_job },
	{ NULL, 0, false, NULL, NULL },
};
/* clang-format on */
