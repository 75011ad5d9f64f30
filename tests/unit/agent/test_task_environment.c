/* Tests the environment of a task: every variable of a place, and what becomes of those of the agent. */
#include "agent/task/environment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 8 };

/* Rank 13 of 16: the 6th task of the second of 2 nodes. */
static const struct task_place gpu = {
	.rank = 13,
	.world = 16,
	.local_rank = 5,
	.local_world = 8,
	.group_rank = 1,
	.group_world = 2,
	.master_addr = "n1",
	.master_port = 40001,
	.coordinator_port = 40002,
	.run_id = "llama-3",
	.restarts = 2,
	.max_restarts = 7,
	.cuda = true,
	.devices = "0,1,2,3,4,7,6,5",
	.device = "7",
	.interface = "ib0",
	.threads = 12,
	.run_dir = "/runs/llama",
	.trace_dir = "/runs/llama/trace/gen-3",
	.pipe_dir = "/runs/llama/trace/gen-3",
	.error_file = "/runs/llama/trace/gen-3/error-13.json",
	.plan_json = "{\"dp\":16}",
	.client_dir = "/opt/muster/client",
	.pmix = true,
};

/* The only task of a host without a GPU, and as little as an agent can say of it. */
static const struct task_place alone = {
	.world = 1,
	.local_world = 1,
	.group_world = 1,
	.master_addr = "::1",
	.master_port = 40001,
	.coordinator_port = 40002,
	.run_id = "x",
	.devices = "",
	.device = "",
	.interface = "",
	.one_host = true,
	.threads = 1,
	.run_dir = "/runs/x",
	.trace_dir = "",
	.pipe_dir = "",
	.error_file = "",
	.plan_json = "",
	.client_dir = "",
};

static char **environment_of(const struct task_place *p, const char *const *base)
{
	char **env;
	struct err e = ERR_INIT;
	if (task_environment((char *const *)(uintptr_t)base, p, &env, &e))
		fail_msg("%s", e.text);
	return env;
}

static void assert_environment(const struct task_place *p, const char *const *base,
			       const char *const *want)
{
	char **env = environment_of(p, base);
	size_t i;
	for (i = 0; env[i] && want[i]; i++)
		assert_string_equal(env[i], want[i]);
	if (env[i] || want[i])
		fail_msg("variable %zu is %s, not %s", i, env[i] ? env[i] : "missing",
			 want[i] ? want[i] : "missing");
	free(env);
}

static void a_task_on_gpus_gets_every_variable(void **state)
{
	static const char *const want[] = {
		"PYTHONPATH=/opt/muster/client",
		"RANK=13",
		"WORLD_SIZE=16",
		"LOCAL_RANK=5",
		"LOCAL_WORLD_SIZE=8",
		"GROUP_RANK=1",
		"GROUP_WORLD_SIZE=2",
		"NODE_RANK=1",
		"ROLE_NAME=default",
		"ROLE_RANK=13",
		"ROLE_WORLD_SIZE=16",
		"MASTER_ADDR=n1",
		"MASTER_PORT=40001",
		"TORCHELASTIC_RESTART_COUNT=2",
		"TORCHELASTIC_MAX_RESTARTS=7",
		"TORCHELASTIC_RUN_ID=llama-3",
		"TORCHELASTIC_USE_AGENT_STORE=False",
		"TORCHELASTIC_ERROR_FILE=/runs/llama/trace/gen-3/error-13.json",
		"OMPI_COMM_WORLD_SIZE=16",
		"OMPI_COMM_WORLD_RANK=13",
		"OMPI_COMM_WORLD_LOCAL_SIZE=8",
		"OMPI_COMM_WORLD_LOCAL_RANK=5",
		"OMPI_COMM_WORLD_NODE_RANK=5",
		"OMPI_UNIVERSE_SIZE=16",
		"OMPI_APP_CTX_NUM_PROCS=16",
		"OMPI_NUM_APP_CTX=1",
		"OMPI_FIRST_RANKS=0",
		"OMPI_MCA_schizo=^orte",
		"JAX_COORDINATOR_ADDRESS=n1:40002",
		"JAX_NUM_PROCESSES=16",
		"JAX_PROCESS_ID=13",
		"JAX_LOCAL_DEVICE_IDS=5",
		"CUDA_VISIBLE_DEVICES=0,1,2,3,4,7,6,5",
		"CUDA_DEVICE_ORDER=PCI_BUS_ID",
		"OMP_NUM_THREADS=12",
		"NCCL_SOCKET_IFNAME==ib0",
		"GLOO_SOCKET_IFNAME=ib0",
		"TP_SOCKET_IFNAME=ib0",
		"OMPI_MCA_btl_tcp_if_include=ib0",
		"OMPI_MCA_oob_tcp_if_include=ib0",
		"TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
		"TORCH_FR_BUFFER_SIZE=2000",
		"TORCH_FR_DUMP_TEMP_FILE=/runs/llama/trace/gen-3/torch-",
		"TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/runs/llama/trace/gen-3/torch-",
		"TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/runs/llama/trace/gen-3/torch-",
		"PYTHONUNBUFFERED=1",
		"PYTHONFAULTHANDLER=1",
		"MUSTER_PLAN={\"dp\":16}",
		"MUSTER_RUN_DIR=/runs/llama",
		NULL,
	};
	(void)state;
	assert_environment(&gpu, (const char *const[]){ NULL }, want);
}

static void what_a_place_lacks_is_left_out(void **state)
{
	static const char *const want[] = {
		"RANK=0",
		"WORLD_SIZE=1",
		"LOCAL_RANK=0",
		"LOCAL_WORLD_SIZE=1",
		"GROUP_RANK=0",
		"GROUP_WORLD_SIZE=1",
		"NODE_RANK=0",
		"ROLE_NAME=default",
		"ROLE_RANK=0",
		"ROLE_WORLD_SIZE=1",
		"MASTER_ADDR=::1",
		"MASTER_PORT=40001",
		"TORCHELASTIC_RESTART_COUNT=0",
		"TORCHELASTIC_MAX_RESTARTS=0",
		"TORCHELASTIC_RUN_ID=x",
		"TORCHELASTIC_USE_AGENT_STORE=False",
		"OMPI_COMM_WORLD_SIZE=1",
		"OMPI_COMM_WORLD_RANK=0",
		"OMPI_COMM_WORLD_LOCAL_SIZE=1",
		"OMPI_COMM_WORLD_LOCAL_RANK=0",
		"OMPI_COMM_WORLD_NODE_RANK=0",
		"OMPI_UNIVERSE_SIZE=1",
		"OMPI_APP_CTX_NUM_PROCS=1",
		"OMPI_NUM_APP_CTX=1",
		"OMPI_FIRST_RANKS=0",
		"JAX_COORDINATOR_ADDRESS=[::1]:40002",
		"JAX_NUM_PROCESSES=1",
		"JAX_PROCESS_ID=0",
		"OMP_NUM_THREADS=1",
		"NCCL_SOCKET_IFNAME==lo",
		"GLOO_SOCKET_IFNAME=lo",
		"TP_SOCKET_IFNAME=lo",
		"OMPI_MCA_btl_tcp_if_include=lo",
		"OMPI_MCA_oob_tcp_if_include=lo",
		"TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
		"TORCH_FR_BUFFER_SIZE=2000",
		"PYTHONUNBUFFERED=1",
		"PYTHONFAULTHANDLER=1",
		"MUSTER_RUN_DIR=/runs/x",
		NULL,
	};
	(void)state;
	assert_environment(&alone, (const char *const[]){ NULL }, want);
}

/* One word of the agent's environment, and what a task has of that name and others. "-NAME" is not set. */
struct change {
	const char *base[MOST], *task[MOST];
};

static void assert_changes(const struct task_place *p, const struct change *cases, size_t n)
{
	for (size_t c = 0; c < n; c++) {
		char **env = environment_of(p, cases[c].base);
		for (const char *const *want = cases[c].task; *want; want++) {
			bool absent = **want == '-';
			size_t found = 0, len = strcspn(*want + absent, "=");
			for (char **word = env; *word; word++) {
				if (strncmp(*word, *want + absent, len) || (*word)[len] != '=')
					continue;
				found++;
				if (absent || strcmp(*word, *want))
					fail_msg("%s gives %s, not %s", *cases[c].base, *word,
						 *want);
			}
			if (found != !absent)
				fail_msg("%s gives %zu times %s", *cases[c].base, found, *want);
		}
		free(env);
	}
}

static void the_users_variables_pass_to_the_task(void **state)
{
	static const struct change cases[] = {
		{ { "PATH=/bin", "EMPTY=", "ODD=a=b" }, { "PATH=/bin", "EMPTY=", "ODD=a=b" } },
		{ { "OMP_NUM_THREADS=3" }, { "OMP_NUM_THREADS=3" } },
		{ { "OMP_NUM_THREADS_X=3" }, { "OMP_NUM_THREADS=12", "OMP_NUM_THREADS_X=3" } },
		{ { "GLOO_SOCKET_IFNAME=eth1" },
		  { "GLOO_SOCKET_IFNAME=eth1", "NCCL_SOCKET_IFNAME==ib0" } },
		{ { "PYTHONUNBUFFERED=" }, { "PYTHONUNBUFFERED=" } },
		{ { "PMIX_RANK=13", "PMIX_NAMESPACE=n" }, { "PMIX_RANK=13", "PMIX_NAMESPACE=n" } },
		{ { "PYTHONPATH=/a:/b" }, { "PYTHONPATH=/a:/b:/opt/muster/client" } },
		{ { "PYTHONPATH=" }, { "PYTHONPATH=/opt/muster/client" } },
	};
	(void)state;
	assert_changes(&gpu, cases, sizeof cases / sizeof *cases);
}

/* The other generation of a name counts as the user's choice, and so does one that excludes ours. */
static void another_name_of_a_setting_is_the_users_choice(void **state)
{
	static const struct change cases[] = {
		{ { "TORCH_NCCL_TRACE_BUFFER_SIZE=9" },
		  { "TORCH_NCCL_TRACE_BUFFER_SIZE=9", "-TORCH_FR_BUFFER_SIZE" } },
		{ { "TORCH_FR_DUMP_TEMP_FILE=/t" },
		  { "TORCH_FR_DUMP_TEMP_FILE=/t", "-TORCH_NCCL_DEBUG_INFO_TEMP_FILE" } },
		{ { "OMPI_MCA_btl_tcp_if_exclude=eth0" }, { "-OMPI_MCA_btl_tcp_if_include" } },
	};
	(void)state;
	assert_changes(&gpu, cases, sizeof cases / sizeof *cases);
}

static void the_place_goes_before_the_users_variables(void **state)
{
	static const struct change cases[] = {
		{ { "RANK=0", "RANK=1", "WORLD_SIZE=1" }, { "RANK=13", "WORLD_SIZE=16" } },
		{ { "CUDA_VISIBLE_DEVICES=3", "CUDA_DEVICE_ORDER=FASTEST_FIRST" },
		  { "CUDA_VISIBLE_DEVICES=0,1,2,3,4,7,6,5", "CUDA_DEVICE_ORDER=PCI_BUS_ID" } },
	};
	(void)state;
	assert_changes(&gpu, cases, sizeof cases / sizeof *cases);
}

static void no_secret_and_nothing_of_muster_gets_to_the_task(void **state)
{
	static const struct change cases[] = {
		{ { "MUSTER_SECRET=s", "MUSTER_SUPERVISOR=h:1", "MUSTER_AUTH=a", "MUSTER_RANKS=1",
		    "MUSTER_PLAN=old", "MUSTER_NEW=1" },
		  { "-MUSTER_SECRET", "-MUSTER_SUPERVISOR", "-MUSTER_AUTH", "-MUSTER_RANKS",
		    "MUSTER_PLAN={\"dp\":16}", "-MUSTER_NEW" } },
		{ { "DRILL_FAULT=hang", "DRILL_MARK=m" }, { "-DRILL_FAULT", "DRILL_MARK=m" } },
		{ { "no variable", "=C:" }, { "-no variable", "-" } },
	};
	(void)state;
	assert_changes(&gpu, cases, sizeof cases / sizeof *cases);
}

static void slurms_variables_become_the_tasks_but_none_is_added(void **state)
{
	static const struct change cases[] = {
		{ { "SLURM_PROCID=17", "SLURM_LOCALID=1", "SLURM_NODEID=2", "SLURM_NTASKS=24",
		    "SLURM_NNODES=3", "SLURM_NTASKS_PER_NODE=1", "SLURM_JOB_ID=7" },
		  { "SLURM_PROCID=13", "SLURM_LOCALID=5", "SLURM_NODEID=1", "SLURM_NTASKS=16",
		    "SLURM_NNODES=2", "-SLURM_NTASKS_PER_NODE", "SLURM_JOB_ID=7" } },
		{ { "SLURM_JOB_ID=7" }, { "-SLURM_PROCID", "-SLURM_NTASKS", "SLURM_JOB_ID=7" } },
	};
	(void)state;
	assert_changes(&gpu, cases, sizeof cases / sizeof *cases);
}

static void without_pmix_a_task_gets_no_stale_server(void **state)
{
	static const struct change cases[] = {
		{ { "PMIX_RANK=1", "PMIX_SERVER_URI2=x" },
		  { "-PMIX_RANK", "-PMIX_SERVER_URI2", "-OMPI_MCA_schizo" } },
	};
	(void)state;
	assert_changes(&alone, cases, 1);
}

static void a_cpu_task_keeps_what_the_user_says_of_gpus(void **state)
{
	static const struct change cases[] = {
		{ { "CUDA_VISIBLE_DEVICES=", "JAX_LOCAL_DEVICE_IDS=0" },
		  { "CUDA_VISIBLE_DEVICES=", "JAX_LOCAL_DEVICE_IDS=0" } },
		{ { "PYTHONPATH=/a" }, { "PYTHONPATH=/a" } },
	};
	(void)state;
	assert_changes(&alone, cases, sizeof cases / sizeof *cases);
}

static void a_task_that_sees_its_own_device_only_finds_it_first(void **state)
{
	static const struct change cases[] = {
		{ { "PATH=/bin" },
		  { "CUDA_VISIBLE_DEVICES=7", "LOCAL_RANK=0", "JAX_LOCAL_DEVICE_IDS=0",
		    "OMPI_COMM_WORLD_LOCAL_RANK=5", "RANK=13" } },
	};
	struct task_place own = gpu;
	(void)state;
	own.visible = TASK_SEES_OWN;
	assert_changes(&own, cases, 1);
}

/* exec refuses a variable of more than 128 KiB, and with it the whole program. */
static void a_plan_that_exec_would_refuse_is_left_out(void **state)
{
	static const struct change fits[] = { { { "A=1" }, { "-MUSTER_PLAN" } } };
	enum { LENGTH = (64 << 10) + 1 };
	struct task_place large = gpu;
	char *plan = malloc(LENGTH + 1);
	(void)state;
	memset(plan, ' ', LENGTH);
	plan[LENGTH] = '\0';
	large.plan_json = plan;
	assert_changes(&large, fits, 1);
	large.plan_json = plan + 1;
	char **env = environment_of(&large, (const char *const[]){ NULL });
	size_t i = 0;
	while (env[i] && strncmp(env[i], "MUSTER_PLAN=", 12))
		i++;
	assert_non_null(env[i]);
	assert_int_equal(strlen(env[i]), 12 + LENGTH - 1);
	free(env);
	free(plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_task_on_gpus_gets_every_variable),
		cmocka_unit_test(what_a_place_lacks_is_left_out),
		cmocka_unit_test(the_users_variables_pass_to_the_task),
		cmocka_unit_test(another_name_of_a_setting_is_the_users_choice),
		cmocka_unit_test(the_place_goes_before_the_users_variables),
		cmocka_unit_test(no_secret_and_nothing_of_muster_gets_to_the_task),
		cmocka_unit_test(slurms_variables_become_the_tasks_but_none_is_added),
		cmocka_unit_test(without_pmix_a_task_gets_no_stale_server),
		cmocka_unit_test(a_cpu_task_keeps_what_the_user_says_of_gpus),
		cmocka_unit_test(a_task_that_sees_its_own_device_only_finds_it_first),
		cmocka_unit_test(a_plan_that_exec_would_refuse_is_left_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
