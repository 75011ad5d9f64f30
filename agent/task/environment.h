/*
 * environment — the environment variables of a task, the process that an agent starts for a program of
 * the user.
 *
 * A task gets the agent's own environment, with these changes:
 *   - variables that say where the task is: those of torchrun, Open MPI's mpirun and JAX. They replace
 *     what the user has set, because a wrong rank breaks the job;
 *   - variables that make a job work or easier to diagnose: threads, network interfaces, PyTorch's
 *     flight recorder, Python's output. They are set only if the user has set neither them nor another
 *     name of the same setting;
 *   - MUSTER_ variables are removed, among them the secret of the control channel (base/agent_env.h).
 *     Only those for programs are set: MUSTER_PLAN and MUSTER_RUN_DIR. process.h adds
 *     MUSTER_CLIENT_FD.
 *
 * To add a variable: its row in the table of environment.c, and its line in
 * tests/unit/agent/test_task_environment.c.
 *
 * What programs do with them:
 *   - PyTorch: init_process_group() without arguments reads RANK, WORLD_SIZE, MASTER_ADDR and
 *     MASTER_PORT. Rank 0 opens the port itself, because TORCHELASTIC_USE_AGENT_STORE is False. A main
 *     function with @record writes the traceback of an exception to TORCHELASTIC_ERROR_FILE, as JSON:
 *     {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, "timestamp": SECONDS}}}. It
 *     replaces a file that is there, and does not create folders.
 *   - MPI: Open MPI finds its rank by the PMIX_ variables, which come from muster's PMIx server or from
 *     Slurm and are kept. The variables of mpirun are for scripts. Open MPI 4 takes any process that
 *     neither mpirun nor Slurm has started for a job of one rank, even if there is PMIx;
 *     OMPI_MCA_schizo=^orte leaves out the component that decides so. Open MPI 5 does not need it.
 *     The mpirun of Open MPI 4 refuses to run where OMPI_UNIVERSE_SIZE is set, as inside of itself:
 *     each task would start a job of its own. `env -u OMPI_UNIVERSE_SIZE mpirun ...` permits it.
 *   - JAX: jax.distributed.initialize() reads JAX_COORDINATOR_ADDRESS and JAX_LOCAL_DEVICE_IDS. It reads
 *     the number of processes and its own number from Slurm's variables only. On one host a program
 *     passes them: num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
 *     process_id=int(os.environ["JAX_PROCESS_ID"]).
 *   - Devices: with TASK_SEES_ALL a task sees all devices of its node that the job uses, in the order
 *     of the local ranks, so LOCAL_RANK is the index of its own. With TASK_SEES_OWN it sees one GPU, and
 *     LOCAL_RANK is 0, as under torchrun --virtual-local-rank; OMPI_COMM_WORLD_LOCAL_RANK is the place
 *     on the node in both cases.
 *
 * Slurm: JAX, PyTorch Lightning and others read SLURM_PROCID, SLURM_LOCALID, SLURM_NODEID and the
 * numbers of tasks and nodes if they are there. They are those of the agent's step, which differ from
 * the task's place if the step has spare nodes. So each that is there is set to the task's place, and none
 * is added: a program must not believe in a step that does not exist. SLURM_NTASKS_PER_NODE is removed;
 * it is what the user asked sbatch for. The lists of nodes, SLURM_NODELIST and the like, are kept;
 * MASTER_ADDR and JAX_COORDINATOR_ADDRESS go before them.
 *
 * Without PMIx (the agent has no PMIX_RANK) PMIX_ variables are removed, because their server does not
 * know the task. An MPI program is then a job of one rank and must not be started so.
 */
#ifndef MUSTER_AGENT_TASK_ENVIRONMENT_H
#define MUSTER_AGENT_TASK_ENVIRONMENT_H

#include "base/err.h"

#include <stdbool.h>

enum task_visible { TASK_SEES_ALL, TASK_SEES_OWN };

/* Where a task is. Texts are "" and numbers negative if there is none; a variable that needs one is left
 * out then. */
struct task_place {
	int rank, world;
	int local_rank, local_world; /* among the tasks of the node */
	int group_rank, group_world; /* the node among those that are used */
	const char *master_addr;     /* of rank 0's node, a name or an address */
	int master_port;             /* free on that node, for the program's own store */
	int coordinator_port;        /* another one, for JAX */
	const char *run_id;          /* the same for all ranks */
	int restarts, max_restarts;
	bool cuda; /* the devices are NVIDIA GPUs */
	enum task_visible visible;
	const char *devices;   /* numbers or UUIDs of the node's, by local rank: "2,3,0,1" */
	const char *device;    /* the task's own */
	const char *interface; /* for sockets, such as ib0; "" on one host: lo */
	bool one_host;
	int threads;
	const char *run_dir;    /* absolute paths, of folders that exist */
	const char *trace_dir;  /* PyTorch writes files to it */
	const char *pipe_dir;   /* PyTorch makes a named pipe in it, and fails if it cannot */
	const char *error_file; /* for @record; its folder exists */
	const char *plan_json;  /* left out above 64 KiB: exec limits a variable to 128 KiB */
	const char *client_dir; /* of muster_client.py; comes last in PYTHONPATH */
	bool pmix;              /* the agent's environment has PMIX_ of this generation */
};

/* Stores the environment in *out, which ends with NULL; one free() releases it all. base: the agent's,
 * usually environ. Fails only without memory. */
int task_environment(char *const *base, const struct task_place *place, char ***out, struct err *e);

#endif
