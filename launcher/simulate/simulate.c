#include "launcher/simulate/simulate.h"

#include "base/file.h"
#include "base/hash.h"
#include "launcher/simulate/world.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of the wall clock when a simulation begins, and how long the world goes on after the run. */
static const double epoch_s = 1.7e9, after_s = 600;

enum { EVENTS_MOST = 20 * 1000 * 1000, SWEEP_EVENTS = 256 };

/* now() and some functions of a launch backend have no argument that could name it. */
static _Thread_local struct simulation *current;

struct simulation *simulate_current(void)
{
	return current;
}

static double virtual_now(void)
{
	return current->queue.now;
}

static double virtual_wall(void)
{
	return epoch_s + current->queue.now;
}

void simulate_later(struct simulation *sim, double delay, void (*fire)(void *arg), void *arg)
{
	simulate_queue_add(&sim->queue, delay, fire, arg);
}

/* --- What is told ----------------------------------------------------------------------------- */

static void mix(struct simulate_result *r, const char *text)
{
	r->hash = (r->hash ^ hash_text(text)) * 0x9E3779B97F4A7C15u;
	r->hash ^= r->hash >> 29;
}

void simulate_note(struct simulation *sim, const char *fmt, ...)
{
	char *line = sim->notes[sim->noted++ % SIMULATE_NOTES];
	va_list args;
	int n = snprintf(line, SIMULATE_NOTE, "%12.6f  ", sim->queue.now);
	va_start(args, fmt);
	vsnprintf(line + n, SIMULATE_NOTE - (size_t)n, fmt, args);
	va_end(args);
	mix(sim->result, line);
}

static void tell(struct simulation *sim)
{
	struct buf *out = &sim->result->text;
	uint64_t from = sim->noted > SIMULATE_NOTES ? sim->noted - SIMULATE_NOTES : 0;
	buf_printf(out, "seed %llu: %s\nfaults:\n%slast events:\n",
		   (unsigned long long)sim->setup->seed, sim->result->why, buf_str(&sim->faults));
	for (uint64_t i = from; i < sim->noted; i++)
		buf_printf(out, "%s\n", sim->notes[i % SIMULATE_NOTES]);
}

void simulate_break(struct simulation *sim, const char *fmt, ...)
{
	va_list args;
	if (sim->result->broken)
		return;
	sim->result->broken = true;
	va_start(args, fmt);
	vsnprintf(sim->result->why, sizeof sim->result->why, fmt, args);
	va_end(args);
	simulate_note(sim, "BROKEN: %s", sim->result->why);
	tell(sim);
}

static void on_line(void *arg, enum rundir_file file, const char *event, const json_t *line,
		    const char *text)
{
	struct simulation *sim = arg;
	simulate_note(sim, "%s %s", rundir_thin_name(file), text);
	simulate_check_line(sim, file, event, line);
}

/* --- Supervisors ------------------------------------------------------------------------------ */

static int open_supervisor(struct simulation *sim, struct err *e)
{
	const struct simulate_setup *setup = sim->setup;
	const struct rundir_watch watch = {
		.wall = virtual_wall, .mono = virtual_now, .line = on_line, .arg = sim
	};
	struct supervise_limits limits = SUPERVISE_LIMITS;
	limits.heartbeat = setup->heartbeat_s;
	const struct supervise_options o = {
		.loop = &sim->loop,
		.job = &setup->job,
		.machines = &setup->machines,
		.first = setup->first,
		.ops = setup->slurm ? &simulate_slurm_ops : &simulate_local_ops,
		.agent = "muster-agent",
		.term = sim->term,
		.listener = -1,
		.limits = limits,
		.now = virtual_now,
		.root = sim->folder,
	};
	if (rundir_open(sim->folder, "run", &sim->run, e))
		return -1;
	rundir_set_watch(sim->run, &watch);
	struct supervise_options with = o;
	with.run = sim->run;
	simulate_check_supervisor(sim);
	if (supervise_open(&with, &sim->supervisor, e)) {
		rundir_close(sim->run);
		return -1;
	}
	sim->result->supervisors++;
	simulate_note(sim, "supervisor %d starts", sim->result->supervisors);
	return 0;
}

static void close_supervisor(struct simulation *sim)
{
	struct supervisor *s = sim->supervisor;
	sim->supervisor = NULL;
	sim->asleep = 0;
	supervise_close(s);
	uv_run(&sim->loop, UV_RUN_NOWAIT);
	rundir_close(sim->run);
	sim->run = NULL;
}

/* The run goes on in its folder, on nodes that are all well again if the job begins again. */
static void open_again(void *arg)
{
	struct simulation *sim = arg;
	struct err e = ERR_INIT;
	sim->stop_cause = (struct stop_answer){ .left = -1 };
	sim->job_ends = 0;
	if (sim->requeued)
		simulate_nodes_return(sim);
	sim->requeued = sim->stopping = false;
	if (open_supervisor(sim, &e))
		simulate_break(sim, "the run cannot go on: %s", e.text);
	else
		supervise_start(sim->supervisor);
}

void simulate_kill_supervisor(struct simulation *sim, double seconds)
{
	simulate_note(sim, "the supervisor is killed");
	simulate_launches_forget(sim);
	close_supervisor(sim);
	simulate_later(sim, seconds, open_again, sim);
}

static void count_end(struct simulation *sim, int status)
{
	static const int statuses[SIMULATE_ENDS] = { [END_DONE] = STATUS_DONE,
						     [END_FAILED] = STATUS_FAILED,
						     [END_CANNOT_START] = STATUS_CANNOT_START,
						     [END_GAVE_UP] = STATUS_GAVE_UP,
						     [END_STOPPED] = STATUS_STOPPED };
	for (int i = 0; i < SIMULATE_ENDS; i++)
		sim->result->ends[i] += statuses[i] == status;
}

/* Whether the run begins again after this end. After a failure the person tries it on the same nodes, or in a
 * new job, in which all are well. */
static bool begins_again(struct simulation *sim, int status)
{
	const struct simulate_setup *s = sim->setup;
	bool late = sim->queue.now >= SIMULATE_BEGIN + 2 * s->seconds;
	bool again = random_chance(&sim->delays, s->again);
	if (status == STATUS_STOPPED)
		return !late && (sim->requeued || again);
	if (status == STATUS_DONE || !s->insists || late || !again ||
	    sim->result->all_faults >= s->most_faults)
		return false;
	sim->requeued = random_chance(&sim->delays, 0.5);
	return true;
}

static void note_end(struct simulation *sim)
{
	int status;
	if (!sim->supervisor || !supervise_done(sim->supervisor, &status))
		return;
	simulate_note(sim, "the run ends with status %d", status);
	count_end(sim, status);
	simulate_check_end(sim, status);
	close_supervisor(sim);
	if (begins_again(sim, status))
		simulate_later(sim, random_between(&sim->delays, 5, 60), open_again, sim);
	else
		sim->over = true;
}

/* --- The loop --------------------------------------------------------------------------------- */

static void run_next(struct simulation *sim)
{
	double due = simulate_queue_due(&sim->queue), tick = due;
	if (sim->supervisor) {
		tick = supervise_due(sim->supervisor);
		tick = tick > sim->asleep ? tick : sim->asleep;
	}
	if (sim->supervisor && tick <= due) {
		sim->queue.now = tick > sim->queue.now ? tick : sim->queue.now;
		supervise_tick(sim->supervisor);
	} else {
		struct simulate_event e = simulate_queue_next(&sim->queue);
		e.fire(e.arg);
	}
	if (sim->result->events++ % SWEEP_EVENTS == 0)
		simulate_processes_sweep(sim);
	note_end(sim);
	simulate_check_time(sim);
}

static void stop_late_run(struct simulation *sim)
{
	if (sim->stopping || !sim->supervisor ||
	    sim->queue.now < SIMULATE_BEGIN + 2 * sim->setup->seconds)
		return;
	sim->stopping = true;
	supervise_stop(sim->supervisor, "the time of the simulation is over", false);
}

static bool goes_on(struct simulation *sim)
{
	if (sim->result->events > EVENTS_MOST)
		simulate_break(sim, "the run does not end");
	return !sim->over && !sim->result->broken && !sim->queue.failed &&
	       (sim->supervisor || sim->queue.n);
}

/* Nothing is held up any more: what is left of the run must end by itself. */
static void settle(struct simulation *sim)
{
	double end = sim->queue.now + after_s;
	simulate_nodes_return(sim);
	for (struct process *p = sim->processes; p; p = p->next) {
		p->stuck = false;
		simulate_process_thaw(p);
	}
	while (simulate_queue_due(&sim->queue) < end && !sim->result->broken) {
		struct simulate_event e = simulate_queue_next(&sim->queue);
		e.fire(e.arg);
	}
	if (!sim->result->broken)
		simulate_check_over(sim);
}

static void run_all(struct simulation *sim)
{
	supervise_start(sim->supervisor);
	simulate_faults_begin(sim);
	while (goes_on(sim)) {
		run_next(sim);
		stop_late_run(sim);
	}
	sim->result->seconds = sim->queue.now - SIMULATE_BEGIN;
	if (sim->over && !sim->result->broken)
		settle(sim);
}

/* --- Opening and closing ----------------------------------------------------------------------- */

static int open_world(struct simulation *sim, struct err *e)
{
	const struct simulate_setup *s = sim->setup;
	const struct terminal_options look = { .fd = open("/dev/null", O_WRONLY | O_CLOEXEC),
					       .every = 1000000 };
	random_init(&sim->delays, s->seed, STREAM_DELAYS);
	random_init(&sim->dice, s->seed, STREAM_FAULTS);
	sim->queue.now = SIMULATE_BEGIN;
	sim->last_process = &sim->processes;
	sim->stop_cause.left = -1;
	sim->machines = calloc((size_t)s->machines.n_nodes, sizeof *sim->machines);
	sim->check.seen = calloc(CHECK_STEPS, sizeof(bool));
	if (look.fd < 0 || !sim->machines || !sim->check.seen ||
	    supervise_terminal_open(&look, &sim->term, NULL) || uv_loop_init(&sim->loop))
		return err_set(e, ERR_NOMEM, "no memory for a simulation");
	sim->loop.data = sim;
	for (int i = 0; i < s->machines.n_nodes; i++)
		sim->machines[i].name = s->machines.nodes[i].name;
	return 0;
}

static void close_world(struct simulation *sim)
{
	if (sim->supervisor) {
		simulate_launches_forget(sim);
		close_supervisor(sim);
	}
	uv_run(&sim->loop, UV_RUN_DEFAULT);
	uv_loop_close(&sim->loop);
	while (sim->queue.n) {
		const struct simulate_event e = simulate_queue_next(&sim->queue);
		simulate_nodes_drop(&e);
	}
	simulate_queue_close(&sim->queue);
	simulate_crews_free(sim);
	simulate_launches_free(sim);
	simulate_processes_free(sim);
	for (struct errands *b = sim->errands, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	supervise_terminal_close(sim->term);
	buf_fini(&sim->faults);
	free(sim->machines);
	free(sim->check.seen);
}

int simulate_run(const struct simulate_setup *setup, const char *folder,
		 struct simulate_result *result, struct err *e)
{
	struct simulation *sim = calloc(1, sizeof *sim);
	int rc = -1;
	*result = (struct simulate_result){ .text = BUF_INIT };
	if (!sim)
		return err_set(e, ERR_NOMEM, "no memory for a simulation");
	sim->setup = setup;
	sim->result = result;
	sim->folder = folder;
	current = sim;
	if (!open_world(sim, e) && !open_supervisor(sim, e)) {
		run_all(sim);
		rc = sim->queue.failed ? err_set(e, ERR_NOMEM, "no memory for the simulation") : 0;
	}
	close_world(sim);
	current = NULL;
	free(sim);
	return rc;
}

void simulate_setup_free(struct simulate_setup *s)
{
	launcher_deployment_free(s->first);
	topo_cluster_free(&s->machines);
}
