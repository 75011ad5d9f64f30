#include "launcher/supervise/progress.h"

#include "base/rank_rows.h"
#include "launcher/supervise/supervisor.h"

#include <stdio.h>
#include <string.h>

/* A rank whose relay is silent as well may have been heard late because of that. */
static void note_silence(struct supervisor *s, int rank, double now)
{
	const struct rank_state *k = &s->ranks[rank],
				*relay = &s->ranks[supervise_wiring_leader(&s->wiring, rank)];
	if (relay == k || relay->beat > k->beat)
		supervise_stragglers_note_silence(s, rank, now - k->beat);
}

void supervise_progress_heard(struct supervisor *s, int rank)
{
	double now = supervise_now(s);
	note_silence(s, rank, now);
	s->ranks[rank].beat = now;
}

void supervise_progress_set(struct supervisor *s, struct rank_state *k, int64_t step,
			    const char *phase)
{
	if (step == k->step && !strcmp(phase, k->phase))
		return;
	supervise_note_move(s, k);
	k->step = step;
	snprintf(k->phase, sizeof k->phase, "%.31s", phase);
}

static int note_report(struct supervisor *s, int rank, const struct msg_progress *m, struct err *e)
{
	struct rank_state *k = &s->ranks[rank];
	if (m->step < -1)
		return err_set(e, ERR_PROTO, "message progress: step %lld is below -1",
			       (long long)m->step);
	if (m->count != k->count && m->step == k->step && !strcmp(m->phase, k->phase))
		supervise_note_move(s, k);
	k->count = m->count;
	if (m->active != k->active)
		k->active_at = supervise_now(s);
	k->active = m->active;
	supervise_stragglers_note(s, rank, m);
	supervise_progress_set(s, k, m->step, m->phase);
	return 0;
}

int supervise_progress_note(struct supervisor *s, int rank, const json_t *body, struct err *e)
{
	struct msg_progress m;
	return msg_progress_read(body, &m, e) || note_report(s, rank, &m, e) ? -1 : 0;
}

/* --- reports by another rank of the node ------------------------------------------------------ */

/* The first rank of a node may report those of its node that are in this generation. */
static int check_rank(const struct supervisor *s, int sender, int rank, struct err *e)
{
	if (supervise_wiring_leader(&s->wiring, rank) != sender)
		return err_set(e, ERR_PROTO,
			       "message node_progress: rank %d does not report for the node of "
			       "rank %d",
			       sender, rank);
	if (!s->ranks[rank].hello)
		return err_set(e, ERR_PROTO, "message node_progress: rank %d has sent no hello",
			       rank);
	return 0;
}

/* Whether reports about the rank count: its own last words may have come before them. */
static bool is_awaited(const struct rank_state *k)
{
	return k->connection && !k->finished && !k->failed;
}

static int note_progress_row(struct supervisor *s, int sender, const json_t *row, struct err *e)
{
	struct msg_progress m;
	int rank;
	if (msg_progress_row_read(row, &rank, &m, e) || check_rank(s, sender, rank, e))
		return -1;
	const struct rank_state *k = &s->ranks[rank];
	if (!is_awaited(k) || m.count < k->count || m.active < k->active)
		return 0;
	supervise_progress_heard(s, rank);
	return note_report(s, rank, &m, e);
}

static int note_times_row(struct supervisor *s, int sender, const json_t *row, struct err *e)
{
	struct msg_times m;
	int rank;
	if (msg_times_row_read(row, &rank, &m, e) || check_rank(s, sender, rank, e))
		return -1;
	/* If they come before the rank's own message ready, they are left out; later ones say more. */
	return supervise_times_note(s, rank, &m, e);
}

/* It may have waited with the relay, so it does not count as heard. */
static int note_report_row(struct supervisor *s, int sender, const json_t *row, struct err *e)
{
	enum msg_type type;
	const json_t *body;
	int rank;
	if (msg_report_row_read(row, &rank, &type, &body, e) || check_rank(s, sender, rank, e))
		return -1;
	if (is_awaited(&s->ranks[rank]))
		supervise_report(s, rank, type, body);
	return 0;
}

static int note_rows(struct supervisor *s, int sender, const json_t *rows,
		     int (*note)(struct supervisor *s, int sender, const json_t *row,
				 struct err *e),
		     struct err *e)
{
	if (!json_is_array(rows))
		return err_set(e, ERR_PROTO, "message node_progress: a list is expected");
	uint32_t generation = s->generation;
	for (size_t i = 0; i < json_array_size(rows) && s->generation == generation; i++)
		if (note(s, sender, json_array_get(rows, i), e))
			return -1;
	return 0;
}

int supervise_progress_note_node(struct supervisor *s, int rank, const json_t *body, struct err *e)
{
	struct msg_node_progress m;
	return msg_node_progress_read(body, &m, e) ||
			       note_rows(s, rank, m.progress, note_progress_row, e) ||
			       note_rows(s, rank, m.times, note_times_row, e) ||
			       note_rows(s, rank, m.reports, note_report_row, e)
		       ? -1
		       : 0;
}

void supervise_progress_read_out(struct supervisor *s, int rank)
{
	const int from[] = { rank, supervise_wiring_leader(&s->wiring, rank) };
	uint32_t generation = s->generation;
	for (int i = 0; i < 2 && s->generation == generation; i++)
		if (s->ranks[from[i]].connection)
			launcher_connection_read_out(s->ranks[from[i]].connection);
}
