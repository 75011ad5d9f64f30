#include "launcher/supervise/times.h"

#include "base/clock.h"
#include "launcher/rundir/time.h"
#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOSSES = 4 }; /* that are printed */

/* A smaller share of the time is not printed. */
static const double shown = 0.005;

static int64_t now_us(const struct supervisor *s)
{
	return llround(1e6 * (supervise_now(s) - s->opened));
}

/* --- devices ------------------------------------------------------------------------- */

/* The number of a node of the first generation, by its name; `near` is tried first, because both lists
 * have about the same order. -1: it does not use the node. */
static int find_node(const struct cluster *c, const char *name, int near)
{
	for (int i = 0; i < c->n_nodes; i++) {
		int node = (near + i) % c->n_nodes;
		if (!strcmp(c->nodes[node].name, name))
			return node;
	}
	return -1;
}

static int most_on_a_node(const struct plan *p)
{
	int most = 0;
	for (int r = 0; r < p->world; r++)
		most = p->ranks[r].node_ranks > most ? p->ranks[r].node_ranks : most;
	return most;
}

/* ranks: those of each node of the first generation. */
static int sum_devices(const struct supervise_options *o, const int *ranks)
{
	const struct cluster *c = o->machines;
	bool slurm = o->ops->word == LAUNCHER_SLURM;
	int count = 0, fullest = most_on_a_node(&o->first->plan), near = 0;
	for (int i = 0; i < c->n_nodes; i++) {
		const struct node_kind *k = topo_cluster_kind(c, i);
		int node = find_node(&o->first->cluster, c->nodes[i].name, near);
		near = node >= 0 ? node + 1 : near;
		if (strcmp(k->device, "cpu") && slurm)
			count += k->devices;
		else
			count += node >= 0 && ranks[node] > 0 ? ranks[node] : slurm ? fullest : 0;
	}
	return count;
}

static int count_devices(const struct supervise_options *o, int *count, struct err *e)
{
	const struct plan *p = &o->first->plan;
	int *ranks = calloc((size_t)o->first->cluster.n_nodes, sizeof *ranks);
	if (!ranks)
		return err_set(e, ERR_NOMEM, "no memory to count the devices of %d nodes",
			       o->first->cluster.n_nodes);
	for (int r = 0; r < p->world; r++)
		ranks[p->ranks[r].node]++;
	*count = sum_devices(o, ranks);
	free(ranks);
	return 0;
}

/* --- the run ------------------------------------------------------------------------- */

static void continue_sums(void *arg, const struct rundir_time_line *l)
{
	int64_t parts[TIME_PART_COUNT];
	rundir_time_parts(l, parts);
	supervise_account_continue(arg, llround(1e6 * l->wall_s), l->step, parts);
}

int supervise_times_open(struct supervisor *s, struct err *e)
{
	struct account *a = &s->times.account;
	struct err why = ERR_INIT;
	int devices = 0;
	if (count_devices(&s->o, &devices, e) ||
	    supervise_account_open(a, s->most, s->world, devices, 0, e))
		return -1;
	if (rundir_time_each(rundir_path(s->o.run), TIMES_READ, continue_sums, a, &why))
		supervise_terminal_event(s->o.term, TONE_WARN, "warn",
					 "the time of the run so far is not known: %s", why.text);
	s->times.due = s->opened + TIMES_S;
	a->opaque = job_has_program(s->o.job);
	return 0;
}

void supervise_times_close(struct supervisor *s)
{
	supervise_account_close(&s->times.account);
}

/* A run that has ended stays as its last line says. */
static void advance(struct supervisor *s)
{
	if (s->state != SUP_DONE)
		supervise_account_advance(&s->times.account, now_us(s));
}

static struct rundir_time sums(const struct supervisor *s)
{
	const struct account *a = &s->times.account;
	struct rundir_time line = { .step = a->step,
				    .ranks = a->world,
				    .devices = a->devices,
				    .wall_s = 1e-6 * (double)a->wall };
	rundir_time_set_parts(&line, a->parts);
	return line;
}

static void write_line(struct supervisor *s)
{
	struct rundir_time line = sums(s);
	rundir_time(s->o.run, s->generation, &line);
	s->times.due = supervise_now(s) + TIMES_S;
}

void supervise_times_write(struct supervisor *s)
{
	advance(s);
	write_line(s);
}

json_t *supervise_times_json(struct supervisor *s)
{
	advance(s);
	struct rundir_time line = sums(s);
	return rundir_time_json(&line, clock_wall_s(), supervise_now(s), s->generation);
}

/* Whether the rank has left its generation so that one on other nodes can follow. */
static bool leaves(const struct supervisor *s, int rank)
{
	bool more = s->program.ranks || s->ranks[rank].step < s->d->job.job.steps;
	return s->recovery.growing && more;
}

/* What the ranks do in a state. A generation that is drained is lost unless the run stops. */
enum pursuit { RUNS, WAITS, STOPS };

static enum pursuit pursuit(const struct supervisor *s)
{
	static const enum pursuit of[SUP_STATE_COUNT] = {
		[SUP_DUMPING] = WAITS,    [SUP_ANALYZING] = WAITS, [SUP_EXAMINING] = WAITS,
		[SUP_REGROUPING] = WAITS, [SUP_SURVEYING] = WAITS, [SUP_WAITING] = WAITS,
		[SUP_BACKOFF] = WAITS,    [SUP_DRAINING] = WAITS,  [SUP_EXITING] = STOPS,
		[SUP_LEAVING] = STOPS,    [SUP_ENDING] = STOPS,    [SUP_UPLOADING] = STOPS,
		[SUP_DONE] = STOPS,
	};
	bool stops = s->outcome == OUTCOME_STOPPED || s->outcome == OUTCOME_FINISHED;
	if (s->state == SUP_EXITING && leaves(s, 0))
		return WAITS;
	return s->state == SUP_DRAINING && stops ? STOPS : of[s->state];
}

void supervise_times_enter(struct supervisor *s)
{
	struct account *a = &s->times.account;
	enum pursuit does = pursuit(s);
	bool trained = a->accrue[TIME_UNREPORTED] > 0;
	if (does == WAITS)
		supervise_account_lose(a, now_us(s));
	else if (does == STOPS)
		supervise_account_stop(a, now_us(s));
	if (trained && does != RUNS)
		supervise_times_write(s);
}

void supervise_times_generation(struct supervisor *s)
{
	struct account *a = &s->times.account;
	supervise_account_generation(a, now_us(s), s->world);
	for (int r = 0; r < s->world; r++)
		supervise_account_group(a, r, s->d->plan.ranks[r].at.pp);
	supervise_times_write(s);
}

void supervise_times_began(struct supervisor *s, int rank, int64_t step, double seconds)
{
	struct account *a = &s->times.account;
	double most = supervise_now(s) - s->opened;
	int64_t since = a->ranks[rank].ready_at + llround(1e6 * fmin(fmax(seconds, 0), most));
	supervise_account_begin(a, now_us(s), rank, step, since);
}

void supervise_times_ready(struct supervisor *s, int rank, int64_t step)
{
	const int64_t *lost = &s->times.account.parts[TIME_LOST];
	int64_t before = *lost;
	if (s->program.ranks) /* where it continues is known after its first step, or never */
		step = s->times.account.step;
	supervise_account_ready(&s->times.account, now_us(s), rank, step);
	if (*lost > before) /* the line shows exactly what was lost */
		write_line(s);
}

int supervise_times_note(struct supervisor *s, int rank, const struct msg_times *m, struct err *e)
{
	struct account_report report = { .step = m->step, .peak_bytes = m->peak_bytes };
	if (time_reported_read(m->us, report.us, e))
		return err_prefix(e, "message times");
	supervise_account_report(&s->times.account, now_us(s), rank, &report);
	return 0;
}

void supervise_times_finished(struct supervisor *s, int rank)
{
	supervise_account_finished(&s->times.account, now_us(s), rank, leaves(s, rank));
}

void supervise_times_tick(struct supervisor *s)
{
	if (s->generation && supervise_now(s) >= s->times.due)
		supervise_times_write(s);
}

void supervise_times_end(struct supervisor *s)
{
	supervise_account_settle(&s->times.account, now_us(s));
	if (s->generation)
		supervise_times_write(s);
}

const struct account_report *supervise_times_of(const struct supervisor *s, int rank)
{
	return &s->times.account.ranks[rank].last;
}

const int64_t *supervise_times_parts(struct supervisor *s)
{
	advance(s);
	return s->times.account.parts;
}

/* --- for people ---------------------------------------------------------------------- */

/* The largest part that does not count and is smaller than `below`; -1: none is shown. */
static int next_loss(const int64_t parts[TIME_PART_COUNT], int64_t below)
{
	int next = -1;
	double least = shown * (double)time_parts_sum(parts);
	for (int i = 0; i < TIME_PART_COUNT; i++)
		if (!time_part_counts((enum time_part)i) && parts[i] < below &&
		    (double)parts[i] >= least && (next < 0 || parts[i] > parts[next]))
			next = i;
	return next;
}

bool supervise_times_tell(const struct supervisor *s)
{
	return !s->program.ranks || s->step >= 0;
}

void supervise_times_print(struct supervisor *s)
{
	const int64_t *parts = supervise_times_parts(s);
	double all = (double)time_parts_sum(parts);
	char losses[300] = "";
	int64_t below = INT64_MAX;
	size_t len = 0;
	if (!s->times.account.marks.n || !supervise_times_tell(s)) /* no rank was ever ready */
		return;
	for (int i = 0, part; i < LOSSES && (part = next_loss(parts, below)) >= 0; i++) {
		below = parts[part];
		len += (size_t)snprintf(losses + len, sizeof losses - len, "%s %s %.1f %%",
					i ? "," : ";", time_part_name((enum time_part)part),
					100 * (double)parts[part] / all);
	}
	supervise_terminal_event(s->o.term, TONE_PLAIN, "goodput", "%.1f %% of %.3g %s hours%s",
				 100 * time_parts_goodput(parts), all / 3600e6,
				 s->d->job.job.device == DEVICE_CUDA ? "GPU" : "rank", losses);
}
