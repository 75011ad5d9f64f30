#include "agent/generation.h"

#include "agent/drill.h"
#include "agent/engine/ckpt/memory/store.h"
#include "agent/engine/parallel/device.h"
#include "agent/metrics/report.h"
#include "agent/place.h"
#include "agent/preflight.h"
#include "agent/rank_log.h"
#include "agent/rendezvous.h"
#include "agent/setup.h"
#include "agent/watch.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/run_paths.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct generation {
	struct generation_start start;
	struct control *control;
	const struct msg_welcome *welcome;
	uint32_t number;
	struct agent_watch *watch; /* NULL: nothing is watched */
	struct comm *world;
	int rank, size;
	struct job job;
	struct rank_view view;
	int threads;
	struct preflight place;
	struct agent_drill drill;
	struct phases phases;
	struct train_blame blame;
	struct rank_log *log; /* NULL: it is not open */
};

/* Computes the rank's view of the plan. Its coordinates must be those of the welcome. */
static int compute_view(struct generation *g, const struct msg_welcome *w, struct err *e)
{
	struct msg_coords at;
	if (msg_coords_read(w->coords, &at, e))
		return -1;
	struct layout l = layout_of(&g->job, 1);
	int replica = layout_world(&l);
	l.dp = g->size / replica;
	if (g->size % replica || l.dp % l.ep)
		return err_set(e, ERR_PROTO,
			       "message welcome: tp %d, cp %d, ep %d and pp %d do not divide %d "
			       "ranks",
			       l.tp, l.cp, l.ep, l.pp, g->size);
	const struct coords own = layout_coords(&l, g->rank);
	if (at.tp != own.tp || at.cp != own.cp || at.dp != own.dp || at.pp != own.pp)
		return err_set(e, ERR_PROTO,
			       "message welcome: its coordinates are not those of rank %d of %d",
			       g->rank, g->size);
	return rank_view_init(&g->job, &l, g->rank, &g->view, e);
}

static int read_welcome(struct generation *g, const struct msg_welcome *w, struct err *e)
{
	g->rank = w->rank;
	g->size = w->world;
	if (w->world < 1 || w->rank < 0 || w->rank >= w->world)
		return err_set(e, ERR_PROTO, "message welcome: rank %d of %d", w->rank, w->world);
	if (job_parse(w->job, "the supervisor's job", &g->job, e) || compute_view(g, w, e))
		return -1;
	g->job.job.graphs = g->job.job.graphs && !agent_drill_armed();
	g->place = (struct preflight){
		.cuda = g->job.job.device == DEVICE_CUDA,
		.bus = w->bus,
		.device = w->device,
		.memory = w->memory,
		.node_ranks = w->node_ranks,
		.node = w->node,
	};
	g->threads = w->threads >= 1 && w->threads <= 4096 ? w->threads : 1;
	return 0;
}

static void abort_world(const char *reason, void *arg)
{
	comm_abort(arg, reason);
}

static int write_recorder(void *arg, struct err *e)
{
	struct generation *g = arg;
	char dir[RUN_PATH], path[RUN_PATH];
	run_path_trace(dir, g->welcome->run, g->number);
	run_path_recorder(path, dir, g->rank);
	return file_make_dirs(dir, e) || comm_dump(g->world, path, e) ? -1 : 0;
}

/* The wait for the other ranks can be aborted, too: one of them may live on and never come. */
static void watch_abort(void *arg, struct comm *world)
{
	struct generation *g = arg;
	agent_control_on_abort(g->control, world ? abort_world : NULL, world);
}

static int open_world(struct generation *g, const struct comm_bootstrap *boot, struct err *e)
{
	char dumps[RUN_PATH];
	run_path_trace(dumps, g->welcome->run, g->number);
	struct comm_options opt = {
		.host = g->start.host,
		.interface = g->job.network.interface,
		.address_hint = agent_control_local_address(g->control),
		.timeout_s = g->job.network.timeout,
		.backend = g->job.network.backend,
		.sockets = (int)g->job.network.sockets,
		.dump_dir = dumps,
		.integrity = (enum comm_integrity)comm_integrity_parse(g->job.network.integrity),
		.joining = watch_abort,
		.joining_arg = g,
	};
	if (comm_open(boot, &opt, &g->world, e))
		return err_prefix(e, "wiring up");
	agent_control_on_dump(g->control, write_recorder, g);
	return 0;
}

/* Opens the world communicator with the endpoints from PMIx, then finalizes PMIx: from then on the
 * death of one rank does not end the others. */
static int wire_up_by_pmix(struct generation *g, const struct agent_place *place, struct err *e)
{
	struct comm_bootstrap boot = *agent_boot_bootstrap(*g->start.boot);
	boot.place = &place->comm;
	if (open_world(g, &boot, e))
		return -1;
	agent_boot_finish(*g->start.boot);
	*g->start.boot = NULL;
	return 0;
}

static int wire_up_by_supervisor(struct generation *g, const struct agent_place *place,
				 struct err *e)
{
	struct rendezvous *r = NULL;
	int rc = agent_rendezvous_open(g->control, place, g->rank, g->size, &r, e) ||
				 open_world(g, agent_rendezvous_bootstrap(r), e)
			 ? -1
			 : 0;
	agent_rendezvous_close(r);
	return rc;
}

static int wire_up(struct generation *g, struct err *e)
{
	struct agent_place place;
	if (g->welcome->pmix != (g->start.boot != NULL))
		return err_set(e, ERR_PROTO, "message welcome: the ranks %s PMIx, this one does%s",
			       g->welcome->pmix ? "use" : "do not use",
			       g->start.boot ? "" : " not");
	if (agent_place_read(g->welcome, !strcmp(g->job.network.backend, "tcp"), &place, e))
		return -1;
	int rc = g->start.boot ? wire_up_by_pmix(g, &place, e)
			       : wire_up_by_supervisor(g, &place, e);
	agent_place_fini(&place);
	return rc;
}

/* Without it the run goes on: slow ranks are then named without a reason. */
static void watch_health(struct generation *g)
{
	struct err e = ERR_INIT;
	char checkpoints[RUN_PATH];
	run_path(checkpoints, g->welcome->run, RUN_CKPT);
	const struct watch_options opt = {
		.control = g->control,
		.world = g->world,
		.window_s = g->job.health.slow_window,
		.node = g->welcome->watches_node,
		.gpu = g->place.cuda ? g->place.bus : "",
		.disk = *g->job.checkpoint.dir && !job_path_is_address(g->job.checkpoint.dir)
				? g->job.checkpoint.dir
				: checkpoints,
	};
	if (agent_watch_open(&opt, &g->watch, &e))
		log_warn("%s", e.text);
}

int agent_generation_open(const struct generation_start *start, struct generation **out,
			  struct err *e)
{
	const struct msg_welcome *w = start->welcome;
	struct generation *g = calloc(1, sizeof *g);
	if (!g)
		return err_set(e, ERR_NOMEM, "no memory for a generation");
	g->start = *start;
	g->control = start->control;
	g->welcome = w;
	g->number = (uint32_t)w->generation;
	if (start->phases)
		g->phases = *start->phases;
	if (read_welcome(g, w, e) || agent_rank_log_open(w, &g->job, g->control, &g->log, e)) {
		agent_generation_close(g);
		return -1;
	}
	agent_setup_bind(w);
	*out = g;
	return 0;
}

/* What must hold before the ranks meet. */
static int prepare(struct generation *g, struct err *e)
{
	double since = clock_s();
	if (agent_drill_open(&g->drill, g->rank, g->number, e) ||
	    agent_setup_end_predecessors(g->control, g->welcome, e))
		return -1;
	train_phases_lap(&g->phases, "predecessors", &since);
	agent_control_progress(g->control, 0, "preflight");
	if (agent_preflight(&g->place, e))
		return -1;
	train_phases_lap(&g->phases, "preflight", &since);
	agent_control_progress(g->control, 0, "wire up");
	if (wire_up(g, e))
		return -1;
	train_phases_lap(&g->phases, "wire-up", &since);
	return 0;
}

static int train(struct generation *g, struct err *e)
{
	const struct msg_welcome *w = g->welcome;
	if (!w->copies)
		ckpt_store_forget(g->start.memory);
	struct train_hooks hooks = agent_report_hooks(g->control);
	hooks.drill = agent_drill_step;
	hooks.plant = agent_drill_plant;
	hooks.drill_data = agent_drill_data;
	hooks.drill_arg = &g->drill;
	g->drill.world = g->world;
	struct train_env env = {
		.view = &g->view,
		.world = g->world,
		.hooks = &hooks,
		.run_dir = w->run,
		.resume = w->resume,
		.generation = g->number,
		.skips = w->skips,
		.threads = g->threads,
		.node = w->node_index,
		.leaf = w->leaf,
		.node_ranks = w->node_ranks,
		.memory = w->warm ? g->start.memory : NULL,
		.node_name = w->node,
		.phases = &g->phases,
		.blame = &g->blame,
		.device = g->place.cuda ? parallel_device_of_slot(g->place.ordinal) : 0,
	};
	return train_run(&env, e);
}

int agent_generation_run(struct generation *g, struct err *e)
{
	if (prepare(g, e))
		return -1;
	const struct coords *at = &g->view.at;
	const struct layout *l = &g->view.layout;
	log_info("rank %d of %d: tp %d/%d, cp %d/%d, dp %d/%d, pp %d/%d, %d threads, %s, "
		 "generation %" PRIu32,
		 g->rank, g->size, at->tp, l->tp, at->cp, l->cp, at->dp, l->dp, at->pp, l->pp,
		 g->threads, comm_backend(g->world), g->number);
	watch_health(g);
	return train(g, e);
}

const struct train_blame *agent_generation_blame(const struct generation *g)
{
	return &g->blame;
}

void agent_generation_fail(struct generation *g)
{
	agent_rank_log_fail(g->log);
}

void agent_generation_close(struct generation *g)
{
	if (!g)
		return;
	agent_watch_close(g->watch);
	agent_control_on_abort(g->control, NULL, NULL);
	agent_control_on_dump(g->control, NULL, NULL);
	comm_close(g->world);
	rank_view_fini(&g->view);
	agent_rank_log_close(g->log);
	free(g);
}
