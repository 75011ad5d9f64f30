/*
 * slurm_nodes: calls one operation of launch_slurm in a job, for tests on a real cluster.
 *
 *     slurm_nodes survey NODE,... [SUSPECT,...]     prints each node's state and what Slurm allows
 *     slurm_nodes requeue EXCLUDE MIN MAX           requeues the job; prints why it could not
 *     slurm_nodes kill NODE,... RUN_DIR COMMAND [lost]
 *                                                   starts 2 ranks per node that execute COMMAND, kills
 *                                                   them at the end of its input, prints the seconds
 */
#include "base/clock.h"
#include "launcher/launch.h"
#include "launcher/slurm/slurm.h"
#include "topo/hostlist.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct test {
	struct cluster cluster;
	struct hostlist names;
	uv_loop_t loop;
	struct launch *launch;
	double killed;
	int status;
};

static int fail(const struct err *e)
{
	fprintf(stderr, "slurm_nodes: %s\n", e->text);
	return 1;
}

static int make_cluster(const char *list, struct test *t, struct err *e)
{
	static struct node_kind kind = { .name = "x", .devices = 2, .cores = 2 };
	if (topo_hostlist_expand(list, &t->names, e))
		return -1;
	t->cluster = (struct cluster){ .kinds = &kind, .n_kinds = 1, .n_nodes = t->names.n };
	t->cluster.nodes = calloc((size_t)t->names.n, sizeof *t->cluster.nodes);
	if (!t->cluster.nodes)
		return err_set(e, ERR_NOMEM, "no memory");
	for (int i = 0; i < t->names.n; i++)
		snprintf(t->cluster.nodes[i].name, TOPO_NAME, "%s", t->names.names[i]);
	return 0;
}

static void on_survey(void *arg, const struct survey *s)
{
	struct test *t = arg;
	for (int i = 0; i < s->n_nodes; i++)
		printf("%s %s\n", t->names.names[i], launcher_node_state_text(s->nodes[i]));
	printf("%s, %s\n", s->answered ? "answered" : "silent",
	       s->can_requeue ? "can be requeued" : "cannot be requeued");
	if (!s->answered)
		printf("why: %s\n", s->why);
}

static int survey(struct test *t, const char *suspects, struct err *e)
{
	struct hostlist h = { .n = 0 };
	bool suspect[64] = { false };
	struct surveying *v;
	if (*suspects && topo_hostlist_expand(suspects, &h, e))
		return -1;
	for (int i = 0; i < h.n; i++)
		for (int k = 0; k < t->names.n && k < 64; k++)
			suspect[k] |= !strcmp(h.names[i], t->names.names[k]);
	topo_hostlist_free(&h);
	const struct survey_request r = { .cluster = &t->cluster, .suspects = suspect };
	if (launch_slurm.survey(&t->loop, &r, on_survey, t, &v, e))
		return -1;
	return uv_run(&t->loop, UV_RUN_DEFAULT);
}

static void on_exited(void *arg, int rank, int status)
{
	struct test *t = arg;
	(void)rank;
	t->status = status;
}

static void on_gone(void *arg)
{
	struct test *t = arg;
	printf("gone %.3f s after the kill, srun's status %d\n", clock_s() - t->killed, t->status);
	launch_slurm.close(t->launch);
}

static int kill_step(struct test *t, const char *run_dir, const char *command, bool lost,
		     struct err *e)
{
	static struct job job;
	static struct plan_rank ranks[128];
	struct plan plan = { .world = 2 * t->names.n, .threads = 1, .ranks = ranks };
	char byte;
	for (int i = 0; i < plan.world && i < 128; i++)
		ranks[i].node = i / 2;
	const struct launch_request r = { .job = &job,
					  .cluster = &t->cluster,
					  .plan = &plan,
					  .n_ranks = plan.world,
					  .generation = 1,
					  .address = "127.0.0.1:1",
					  .secret = "5ec4e7",
					  .run_dir = run_dir,
					  .agent = command,
					  .auth = "secret" };
	const struct launch_events ev = { .exited = on_exited, .all_gone = on_gone, .arg = t };
	job.launch.pmix = PMIX_SLURM;
	if (launch_slurm.start(&t->loop, &r, &ev, &t->launch, e))
		return -1;
	while (read(0, &byte, 1) > 0)
		;
	uv_update_time(&t->loop); /* it has not run meanwhile */
	t->killed = clock_s();
	launch_slurm.kill(t->launch, lost);
	return uv_run(&t->loop, UV_RUN_DEFAULT);
}

int main(int argc, char **argv)
{
	struct test t = { .status = 0 };
	struct err e = ERR_INIT;
	uv_loop_init(&t.loop);
	if (argc == 5 && !strcmp(argv[1], "requeue")) {
		signal(SIGTERM, SIG_IGN); /* Slurm sends it once the job is requeued */
		int rc = launch_slurm.requeue(argv[2], atoi(argv[3]), atoi(argv[4]), &e);
		printf("%s %s\n", rc ? "refused:" : "requeued", e.text);
		return rc ? 1 : 0;
	}
	if (argc < 3 || make_cluster(argv[2], &t, &e))
		return fail(&e);
	if (!strcmp(argv[1], "survey"))
		return survey(&t, argc > 3 ? argv[3] : "", &e) ? fail(&e) : 0;
	if (!strcmp(argv[1], "kill") && argc > 4)
		return kill_step(&t, argv[3], argv[4], argc > 5, &e) ? fail(&e) : 0;
	err_set(&e, ERR_USAGE, "usage: slurm_nodes survey|requeue|kill ...");
	return fail(&e);
}
