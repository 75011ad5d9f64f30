/* launch_slurm against substitutes for srun, squeue and scancel. They are shell scripts in a folder
 * of their own, where the file "listed" represents the controller's list of job steps. */
#include "base/clock.h"
#include "base/file.h"
#include "launcher/child.h"
#include "launcher/launch.h"
#include "launcher/slurm/slurm.h"
#include "tests/unit/tmpdir.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
	char folder[64], path[512];
	uv_loop_t loop;
	int exited, gone, status;
	struct launch *launch;
	bool keep; /* restart.shrink = keep */
	enum job_pmix pmix;
	int notes;
	enum launch_note note;     /* the last one */
	int missing[2], n_missing; /* the ranks to start; 0: all */
};

static void write_script(struct world *w, const char *name, const char *text)
{
	char path[128];
	snprintf(path, sizeof path, "%s/bin/%s", w->folder, name);
	FILE *f = fopen(path, "we");
	assert_non_null(f);
	fprintf(f, "#!/bin/sh\ncd %s\n%s", w->folder, text);
	fclose(f);
	assert_int_equal(chmod(path, 0700), 0);
}

#define LIST \
	"for a; do case $a in --job-name=*) echo \"9.4|${a#--job-name=}\" > listed;; esac; " \
	"done\necho $$ > srun.pid\n"

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof *w);
	assert_non_null(tmpdir_make(w->folder, sizeof w->folder));
	char path[128];
	snprintf(path, sizeof path, "%s/bin", w->folder);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(w->path, sizeof w->path, "%s:/usr/bin:/bin", path);
	snprintf(path, sizeof path, "%s/logs", w->folder);
	assert_int_equal(mkdir(path, 0700), 0);
	setenv("PATH", w->path, 1);
	setenv("SLURM_JOB_ID", "9", 1);
	w->pmix = PMIX_SLURM;
	write_script(
		w, "squeue",
		"echo \"9.batch|batch\"\necho \"9.3|muster-1\"\ncat listed 2>/dev/null\nexit 0\n");
	write_script(w, "scancel",
		     "echo \"$@\" >> cancelled\nrm -f listed\nkill -9 $(cat srun.pid)\n");
	uv_loop_init(&w->loop);
	*state = w;
	return 0;
}

static void on_tick(uv_timer_t *t)
{
	uv_close((uv_handle_t *)t, NULL);
}

static int teardown(void **state)
{
	struct world *w = *state;
	char command[128];
	/* A scancel that was still running when the launch was closed ends by itself. The loop
	 * does not wait for it, so a timer keeps the loop running. */
	for (double until = clock_s() + 20; uv_loop_close(&w->loop);) {
		uv_timer_t t;
		assert_true(clock_s() < until);
		uv_timer_init(&w->loop, &t);
		uv_timer_start(&t, on_tick, 1, 0);
		uv_run(&w->loop, UV_RUN_DEFAULT);
	}
	snprintf(command, sizeof command, "rm -r %s", w->folder);
	assert_int_equal(system(command), 0);
	free(w);
	return 0;
}

static void on_exited(void *arg, int rank, int status)
{
	struct world *w = arg;
	assert_int_equal(rank, -1);
	assert_false(w->gone);
	w->exited++;
	w->status = status;
}

static void on_gone(void *arg)
{
	struct world *w = arg;
	assert_int_equal(w->exited, 1);
	w->gone++;
	launch_slurm.close(w->launch);
}

static void on_noted(void *arg, enum launch_note what, const char *node, const char *text)
{
	struct world *w = arg;
	(void)node;
	assert_true(*text);
	w->notes++;
	w->note = what;
}

/* Two ranks on node b, then one on node a. */
static int start_step(struct world *w, struct err *e)
{
	static struct job job;
	job.launch.pmix = w->pmix;
	job.restart.shrink = w->keep ? SHRINK_KEEP : SHRINK_ANY;
	static struct node_kind kinds[] = { { .name = "x", .devices = 2, .cores = 6 } };
	static struct cluster_node nodes[] = { { .name = "a" },
					       { .name = "b" },
					       { .name = "unused" } };
	static const struct cluster cluster = {
		.kinds = kinds, .n_kinds = 1, .nodes = nodes, .n_nodes = 3
	};
	static struct plan_rank ranks[] = { { .node = 1 }, { .node = 1 }, { .node = 0 } };
	static const struct plan plan = { .world = 3, .threads = 2, .ranks = ranks };
	const struct launch_request r = { .job = &job,
					  .cluster = &cluster,
					  .plan = &plan,
					  .ranks = w->n_missing ? w->missing : NULL,
					  .n_ranks = w->n_missing ? w->n_missing : 3,
					  .generation = 7,
					  .address = w->pmix == PMIX_SLURM ? "192.0.2.1:4711"
									   : "127.0.0.1:4711",
					  .secret = "5ec4e7",
					  .run_dir = w->folder,
					  .agent = "/opt/agent",
					  .auth = "munge:/s" };
	const struct launch_events ev = {
		.exited = on_exited, .all_gone = on_gone, .arg = w, .noted = on_noted
	};
	return launch_slurm.start(&w->loop, &r, &ev, &w->launch, e);
}

static void starts_step(struct world *w)
{
	struct err e = ERR_INIT;
	if (start_step(w, &e))
		fail_msg("%s", e.text);
}

static void read_file(struct world *w, const char *name, struct buf *out)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", w->folder, name);
	file_slurp(path, 1 << 20, out, NULL);
}

static void file_contains(struct world *w, const char *file, const char *text)
{
	struct buf b = BUF_INIT;
	read_file(w, file, &b);
	if (!strstr(buf_str(&b), text))
		fail_msg("%s does not hold \"%s\" but\n%s", file, text, buf_str(&b));
	buf_fini(&b);
}

static void file_lacks(struct world *w, const char *file, const char *text)
{
	struct buf b = BUF_INIT;
	read_file(w, file, &b);
	if (strstr(buf_str(&b), text))
		fail_msg("%s holds \"%s\"", file, text);
	buf_fini(&b);
}

/* Waits until a substitute has written the file. */
static void wait_for(struct world *w, const char *name)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", w->folder, name);
	for (double until = clock_s() + 20; access(path, F_OK); usleep(1000))
		assert_true(clock_s() < until);
}

/* Waits until a process has written something to the file. */
static void wait_for_text(struct world *w, const char *name)
{
	char path[128];
	struct stat st;
	snprintf(path, sizeof path, "%s/%s", w->folder, name);
	for (double until = clock_s() + 20; stat(path, &st) || !st.st_size; usleep(1000))
		assert_true(clock_s() < until);
}

static void a_step_that_ends_is_gone(void **state)
{
	struct world *w = *state;
	write_script(w, "srun", LIST "echo hello\nrm listed\nexit 3\n");
	starts_step(w);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(w->gone, 1);
	assert_int_equal(WEXITSTATUS(w->status), 3);
	file_contains(w, "logs/launch-7.log", "hello");
	file_lacks(w, "cancelled", "9.4");
}

static void the_step_gets_each_ranks_node_and_no_secret_is_visible(void **state)
{
	struct world *w = *state;
	setenv("SLURM_NTASKS_PER_NODE", "5", 1);
	setenv("PMIX_RANK", "1", 1);
	setenv("OMP_NUM_THREADS", "1", 1);
	write_script(w, "srun", "echo \"$@\" > words\nenv > env\ncp $SLURM_HOSTFILE hosts\n");
	starts_step(w);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	file_contains(w, "hosts", "b\nb\na\n");
	file_contains(w, "words", "-K0 --wait=0");
	file_contains(w, "words", " --mpi=pmix --label");
	file_contains(w, "words", "--no-kill");
	file_contains(w, "words", "--ntasks=3 --nodes=2 --cpus-per-task=3 ");
	file_contains(w, "words", " /opt/agent\n");
	file_lacks(w, "words", "5ec4e7");
	file_lacks(w, "logs/launch-7.log", "5ec4e7");
	file_contains(w, "env", "MUSTER_SECRET=5ec4e7\n");
	file_contains(w, "env", "MUSTER_SUPERVISOR=192.0.2.1:4711\n");
	file_contains(w, "env", "MUSTER_GENERATION=7\n");
	file_contains(w, "env", "MUSTER_AUTH=munge:/s\n");
	file_contains(w, "env", "OMP_NUM_THREADS=1\n");
	file_contains(w, "env", "OPENBLAS_NUM_THREADS=2\n");
	file_lacks(w, "env", "SLURM_NTASKS_PER_NODE");
	file_lacks(w, "env", "PMIX_RANK");
	unsetenv("SLURM_NTASKS_PER_NODE");
	unsetenv("PMIX_RANK");
	unsetenv("OMP_NUM_THREADS");
}

static void only_the_missing_agents_are_started_without_pmix(void **state)
{
	struct world *w = *state;
	w->missing[0] = 0;
	w->missing[1] = 2;
	w->n_missing = 2;
	write_script(w, "srun", "echo \"$@\" > words\nenv > env\ncp $SLURM_HOSTFILE hosts\n");
	starts_step(w);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	file_contains(w, "hosts", "b\na\n");
	file_lacks(w, "hosts", "b\nb\n");
	file_contains(w, "words", " --mpi=none --label");
	file_contains(w, "words", "--ntasks=2 --nodes=2 ");
	file_contains(w, "env", "MUSTER_RANKS=0,2/3\n");
}

/* The helpers get the relay's secret; the agents' secret travels in no environment. */
static void with_musters_own_pmix_the_step_has_one_helper_per_node(void **state)
{
	struct world *w = *state;
	w->pmix = PMIX_MUSTER;
	write_script(w, "srun",
		     LIST "echo \"$@\" > words\nenv > env\ncp $SLURM_HOSTFILE hosts\n"
			  "rm listed\n");
	starts_step(w);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(w->gone, 1);
	assert_int_equal(w->notes, 1);
	assert_int_equal(w->note, LAUNCH_NOTE_OWN_PMIX);
	file_contains(w, "hosts", "a\nb\n");
	file_lacks(w, "hosts", "b\nb\n");
	file_contains(w, "words", "-K0 --wait=0");
	file_contains(w, "words", "--ntasks=2 --nodes=2 --cpus-per-task=6 --mpi=none ");
	file_contains(w, "words", "--ntasks-per-node=1 ");
	file_contains(w, "words", " helper\n");
	file_lacks(w, "words", "/opt/agent");
	file_contains(w, "env", "MUSTER_SECRET=");
	file_contains(w, "env", "MUSTER_SUPERVISOR=127.0.0.1:");
	file_lacks(w, "env", "5ec4e7");
	file_lacks(w, "env", "127.0.0.1:4711");
}

/* Helpers that do not connect cannot be asked: the step is ended like one without helpers. */
static void helpers_that_do_not_answer_are_killed(void **state)
{
	struct world *w = *state;
	w->pmix = PMIX_MUSTER;
	write_script(w, "srun", LIST "touch ready\nexec sleep 100\n");
	starts_step(w);
	wait_for(w, "ready");
	launch_slurm.kill(w->launch, false);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(w->gone, 1);
	file_contains(w, "cancelled", "--quiet --signal=KILL 9.4\n");
}

/* The choice is kept for the whole process, so this test is the last one. */
static void a_plugin_that_fails_is_not_tried_again(void **state)
{
	struct world *w = *state;
	w->pmix = PMIX_AUTO;
	write_script(w, "srun",
		     "case $* in *--mpi=list*) echo 'srun: pmix_v4'; exit;; esac\n"
		     "echo \"$@\" > words\n"
		     "echo 'srun: error: cannot find mpi plugin for mpi/pmix'; exit 1\n");
	starts_step(w);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	file_contains(w, "words", "--mpi=pmix");
	assert_int_equal(w->notes, 1);
	assert_int_equal(w->note, LAUNCH_NOTE_PMIX_REFUSED);
	w->exited = w->gone = 0;
	starts_step(w);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	file_contains(w, "words", "--mpi=none");
	assert_int_equal(w->note, LAUNCH_NOTE_OWN_PMIX);
	w->exited = w->gone = 0;
	w->pmix = PMIX_SLURM; /* the job insists */
	starts_step(w);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	file_contains(w, "words", "--mpi=pmix");
	assert_int_equal(w->notes, 2);
}

static void slurm_ends_the_step_of_a_run_that_needs_every_node(void **state)
{
	struct world *w = *state;
	w->keep = true;
	write_script(w, "srun", "echo \"$@\" > words\n");
	starts_step(w);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	file_contains(w, "words", "-K0 --wait=0");
	file_lacks(w, "words", "--no-kill");
}

static void killing_cancels_the_step_by_its_id(void **state)
{
	struct world *w = *state;
	write_script(w, "srun", LIST "touch ready\nexec sleep 100\n");
	starts_step(w);
	wait_for(w, "ready");
	launch_slurm.kill(w->launch, false);
	launch_slurm.kill(w->launch, false);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(w->gone, 1);
	assert_int_equal(WTERMSIG(w->status), SIGKILL);
	file_contains(w, "cancelled", "--quiet --signal=KILL 9.4\n");
}

static void a_step_that_is_not_listed_yet_is_killed_too(void **state)
{
	struct world *w = *state;
	write_script(w, "srun", "touch ready\nexec sleep 100\n");
	starts_step(w);
	wait_for(w, "ready");
	launch_slurm.kill(w->launch, false);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(w->gone, 1);
	assert_int_equal(WTERMSIG(w->status), SIGKILL);
}

/* srun returns 0 although tasks are still alive. launch_slurm finds and ends them. */
static void tasks_that_outlive_srun_are_killed(void **state)
{
	struct world *w = *state;
	write_script(w, "scancel", "echo \"$@\" >> cancelled\nrm listed\n");
	write_script(w, "srun", LIST "exit 0\n");
	starts_step(w);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(w->gone, 1);
	assert_int_equal(w->status, 0);
	file_contains(w, "cancelled", "9.4");
}

static void a_step_that_stays_listed_counts_as_gone(void **state)
{
	struct world *w = *state;
	write_script(w, "scancel", "echo \"$@\" >> cancelled\n");
	write_script(w, "srun", LIST "exit 0\n");
	starts_step(w);
	double from = clock_s();
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(w->gone, 1);
	assert_true(clock_s() - from > 4.9);
}

/* A controller that answers slowly must not get a query every 50 ms. */
static void queries_become_rarer_after_the_end_of_srun(void **state)
{
	struct world *w = *state;
	struct buf lines = BUF_INIT;
	write_script(w, "scancel", "echo \"$@\" >> cancelled\n");
	write_script(w, "srun", LIST "exit 0\n");
	starts_step(w);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	read_file(w, "cancelled", &lines);
	int n = 0;
	for (const char *at = buf_str(&lines); *at; at++)
		n += *at == '\n';
	buf_fini(&lines);
	assert_in_range(n, 2, 12); /* few on a slow machine */
}

/* The first squeue never answers. */
static void commands_that_hang_do_not_block_the_end_of_the_step(void **state)
{
	struct world *w = *state;
	write_script(w, "squeue",
		     "[ -e hung ] || { touch hung; exec sleep 1000; }\ncat listed "
		     "2>/dev/null\nexit 0\n");
	write_script(w, "srun", LIST "touch ready\nexec sleep 100\n");
	starts_step(w);
	wait_for(w, "ready");
	launch_slurm.kill(w->launch, false);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(w->gone, 1);
	file_contains(w, "cancelled", "9.4");
	/* It was killed; it may take a moment until it is gone. */
	while (waitpid(-1, NULL, 0) > 0)
		;
}

/* As if a node is dead: scancel waits for it, srun too, and the controller lists the step. */
static void start_step_on_dead_node(struct world *w)
{
	write_script(w, "scancel",
		     "echo \"$@\" >> cancelled\nwhile [ ! -e back ]; do sleep 0.01; "
		     "done\n");
	write_script(w, "srun", LIST "touch ready\nexec sleep 100\n");
	starts_step(w);
	wait_for(w, "ready");
}

static void end_scancel(struct world *w)
{
	write_script(w, "../back", "");
}

static void nobody_waits_for_a_lost_node(void **state)
{
	struct world *w = *state;
	start_step_on_dead_node(w);
	double from = clock_s();
	launch_slurm.kill(w->launch, true);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(w->gone, 1);
	assert_int_equal(WTERMSIG(w->status), SIGKILL);
	/* without it: 5 s from the end of srun, and 1.5 s before */
	assert_true(clock_s() - from < 6);
	wait_for_text(w, "cancelled"); /* nobody waits for scancel, which may start late */
	file_contains(w, "cancelled", "--quiet --signal=KILL 9.4\n");
	end_scancel(w);
}

/* The survey that finds the dead node ends after the kill has begun. */
static void a_node_may_be_found_lost_while_its_step_is_killed(void **state)
{
	struct world *w = *state;
	start_step_on_dead_node(w);
	double from = clock_s();
	launch_slurm.kill(w->launch, false);
	while (!w->exited)
		uv_run(&w->loop, UV_RUN_ONCE);
	assert_int_equal(w->gone, 0);
	launch_slurm.kill(w->launch, true);
	assert_int_equal(w->gone, 0); /* never within kill() */
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(w->gone, 1);
	assert_true(clock_s() - from < 6);
	end_scancel(w);
}

/* A scancel that hangs is not waited for, and only one runs at a time. */
static void a_scancel_that_hangs_delays_nothing(void **state)
{
	struct world *w = *state;
	start_step_on_dead_node(w);
	double from = clock_s();
	launch_slurm.kill(w->launch, false);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(w->gone, 1);
	assert_true(clock_s() - from < 11); /* 1.5 s until srun is killed, then 5 s */
	struct buf lines = BUF_INIT;
	read_file(w, "cancelled", &lines);
	assert_string_equal(buf_str(&lines), "--quiet --signal=KILL 9.4\n");
	buf_fini(&lines);
	end_scancel(w);
}

/* The controller is silent as well, so that the step's id is unknown. */
static void a_lost_node_and_a_silent_controller_delay_little(void **state)
{
	struct world *w = *state;
	start_step_on_dead_node(w);
	write_script(w, "squeue", "exec sleep 1000\n");
	double from = clock_s();
	launch_slurm.kill(w->launch, true);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(w->gone, 1);
	assert_true(clock_s() - from < 5);
	end_scancel(w);
}

static void without_srun_nothing_starts(void **state)
{
	struct world *w = *state;
	char bin[128];
	struct err e = ERR_INIT;
	snprintf(bin, sizeof bin, "%s/bin", w->folder);
	setenv("PATH", bin, 1);
	assert_int_equal(start_step(w, &e), -1);
	setenv("PATH", w->path, 1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	assert_non_null(strstr(e.text, "srun"));
	unsetenv("SLURM_JOB_ID");
	assert_int_equal(start_step(w, &e), -1);
	assert_non_null(strstr(e.text, "muster submit"));
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(w->exited, 0);
}

static void commands_get_input_and_their_errors_are_quoted(void **state)
{
	struct world *w = *state;
	struct buf out = BUF_INIT;
	struct err e = ERR_INIT;
	char *cat[] = { "cat", NULL }, *bad[] = { "bad", NULL }, *slow[] = { "sleep", "100", NULL },
	     *none[] = { "no-such", NULL };
	write_script(w, "bad",
		     "echo first\necho 'sbatch: error: Invalid partition name'\nexit 4\n");
	const struct child_command c = { .argv = cat, .input = "#!/bin/sh\n", .out = -1 };
	assert_int_equal(launcher_child_run(&c, 20, &out, &e), 0);
	assert_string_equal(buf_str(&out), "#!/bin/sh\n");
	assert_int_equal(launcher_child_run(&(struct child_command){ .argv = bad, .out = -1 }, 20,
					    &out, &e),
			 -1);
	assert_string_equal(e.text, "bad failed (4): sbatch: error: Invalid partition name");
	assert_int_equal(launcher_child_run(&(struct child_command){ .argv = slow, .out = -1 },
					    0.05, &out, &e),
			 -1);
	assert_int_equal(e.code, ERR_TIMEOUT);
	assert_int_equal(launcher_child_run(&(struct child_command){ .argv = none, .out = -1 }, 20,
					    &out, &e),
			 -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	assert_int_equal(waitpid(-1, NULL, 0), -1);
	buf_fini(&out);
}

static void the_supervisor_uses_the_address_of_its_node(void **state)
{
	struct world *w = *state;
	char address[NET_ADDR_MAX];
	write_script(
		w, "scontrol",
		"echo \"NodeName=$4 XNodeAddr=203.0.113.9 NodeAddr=127.0.0.7 NodeHostName=x\"\n");
	setenv("SLURMD_NODENAME", "n1", 1);
	setenv("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.8", 1);
	assert_int_equal(slurm_address(address, NULL), 0);
	assert_string_equal(address, "127.0.0.7");
	write_script(w, "scontrol", "exit 1\n");
	assert_int_equal(slurm_address(address, NULL), 0);
	assert_string_equal(address, "127.0.0.8");
	/* If neither is set, the address is that of this host's name, if the name has one. */
	unsetenv("SLURM_LAUNCH_NODE_IPADDR");
	char name[256] = "", by_name[NET_ADDR_MAX] = "";
	assert_int_equal(gethostname(name, sizeof name - 1), 0);
	int rc = net_local_address(NULL, name, by_name, NULL);
	assert_int_equal(slurm_address(address, NULL), rc);
	if (rc == 0)
		assert_string_equal(address, by_name);
	unsetenv("SLURMD_NODENAME");
}

static void credentials_are_required_where_slurm_uses_them(void **state)
{
	struct world *w = *state;
	char word[MUNGE_WORD];
	struct err warning = ERR_INIT;
	/* Slurm uses another authentication method. */
	write_script(w, "scontrol",
		     "echo \"AuthTypeX = auth/munge\nAuthInfo                = (null)\nAuthType    "
		     "      "
		     "      = auth/slurm\"\n");
	launch_slurm.auth(word, &warning);
	assert_string_equal(word, "secret");
	assert_string_equal(warning.text, "");
	/* Slurm uses MUNGE, but no munged listens at the configured place: the user gets a
	 * warning. */
	write_script(w, "scontrol",
		     "echo \"AuthInfo                = ttl=60,socket=/nowhere/a b,x=1\nAuthType    "
		     "      "
		     "      = auth/munge\"\n");
	launch_slurm.auth(word, &warning);
	assert_string_equal(word, "secret");
	assert_non_null(strstr(
		warning.text,
		"no MUNGE credentials, so only the secret protects the control channel: MUNGE: "));
	/* The user disables the check. */
	warning = (struct err)ERR_INIT;
	setenv("MUSTER_AUTH", "secret", 1);
	launch_slurm.auth(word, &warning);
	unsetenv("MUSTER_AUTH");
	assert_string_equal(word, "secret");
	assert_string_equal(warning.text, "");
}

int main(void)
{
#define STEP_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		STEP_TEST(a_step_that_ends_is_gone),
		STEP_TEST(the_step_gets_each_ranks_node_and_no_secret_is_visible),
		STEP_TEST(only_the_missing_agents_are_started_without_pmix),
		STEP_TEST(slurm_ends_the_step_of_a_run_that_needs_every_node),
		STEP_TEST(killing_cancels_the_step_by_its_id),
		STEP_TEST(a_step_that_is_not_listed_yet_is_killed_too),
		STEP_TEST(tasks_that_outlive_srun_are_killed),
		STEP_TEST(a_step_that_stays_listed_counts_as_gone),
		STEP_TEST(queries_become_rarer_after_the_end_of_srun),
		STEP_TEST(commands_that_hang_do_not_block_the_end_of_the_step),
		STEP_TEST(nobody_waits_for_a_lost_node),
		STEP_TEST(a_node_may_be_found_lost_while_its_step_is_killed),
		STEP_TEST(a_scancel_that_hangs_delays_nothing),
		STEP_TEST(a_lost_node_and_a_silent_controller_delay_little),
		STEP_TEST(without_srun_nothing_starts),
		STEP_TEST(the_supervisor_uses_the_address_of_its_node),
		STEP_TEST(credentials_are_required_where_slurm_uses_them),
		STEP_TEST(commands_get_input_and_their_errors_are_quoted),
		STEP_TEST(with_musters_own_pmix_the_step_has_one_helper_per_node),
		STEP_TEST(helpers_that_do_not_answer_are_killed),
		STEP_TEST(a_plugin_that_fails_is_not_tried_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
