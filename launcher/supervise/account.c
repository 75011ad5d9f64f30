#include "launcher/supervise/account.h"

#include <stdlib.h>
#include <string.h>

static int64_t lesser(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* The part that the i-th one of a report, or of the marks, is. */
static enum time_part part_of(int i)
{
	return (enum time_part)(TIME_STEP + i);
}

static void move(struct account *a, enum time_part from, enum time_part to, int64_t us)
{
	a->parts[from] -= us;
	a->parts[to] += us;
}

static void accrue(struct account *a, struct account_rank *r, enum time_part part)
{
	a->accrue[r->at]--;
	a->accrue[part]++;
	r->at = part;
}

/* Ranks 0 to world - 1 exist from now on, none of them is ready, and each accrues to the part. */
static void begin_ranks(struct account *a, int world, enum time_part part)
{
	memset(a->accrue, 0, sizeof a->accrue);
	memset(a->ranks, 0, (size_t)a->most * sizeof *a->ranks);
	for (int r = 0; r < world; r++)
		a->ranks[r].at = part;
	a->accrue[part] = world;
	a->accrue[TIME_IDLE] = larger(0, a->devices - world);
	a->world = world;
	a->fresh = 0;
	a->continues = a->began = false;
}

int supervise_account_open(struct account *a, int most, int world, int devices, int64_t now,
			   struct err *e)
{
	*a = (struct account){ .now = now, .most = most, .devices = devices };
	a->ranks = calloc((size_t)most, sizeof *a->ranks);
	a->slowest = calloc((size_t)most, sizeof *a->slowest);
	if (!a->ranks || !a->slowest) {
		supervise_account_close(a);
		return err_set(e, ERR_NOMEM, "no memory to account for the time of %d ranks", most);
	}
	begin_ranks(a, world, TIME_START);
	return 0;
}

void supervise_account_close(struct account *a)
{
	free(a->ranks);
	free(a->slowest);
	a->ranks = NULL;
	a->slowest = NULL;
}

void supervise_account_continue(struct account *a, int64_t wall, int64_t step,
				const int64_t parts[TIME_PART_COUNT])
{
	a->wall = wall;
	a->step = step;
	memcpy(a->parts, parts, sizeof a->parts);
	memcpy(a->marked, parts + TIME_STEP, sizeof a->marked);
	supervise_marks_add(&a->marks, step, a->marked);
}

void supervise_account_advance(struct account *a, int64_t now)
{
	int64_t passed = now - a->now;
	if (passed <= 0)
		return;
	for (int i = 0; i < TIME_PART_COUNT; i++)
		a->parts[i] += passed * a->accrue[i];
	a->wall += passed;
	a->now = now;
}

/* --- steps up to a mark ------------------------------------------------------------- */

/* What a report says of the steps up to `step`, which is between the two. */
static void interpolate(const struct account_report *from, const struct account_report *to,
			int64_t step, struct account_report *out)
{
	out->step = step;
	for (int i = 0; i < TIME_REPORTED; i++)
		out->us[i] = from->us[i] + supervise_marks_share(to->us[i] - from->us[i],
								 step - from->step,
								 to->step - from->step);
}

/* What the rank did since the last mark, up to `step`. */
static void since_mark(const struct account_rank *r, int64_t step, int64_t us[TIME_REPORTED])
{
	struct account_report upto;
	interpolate(&r->mark, &r->last, step, &upto);
	for (int i = 0; i < TIME_REPORTED; i++)
		us[i] = upto.us[i] - r->mark.us[i];
}

/* Of that the work that waits for no other rank. */
static int64_t own_work(const int64_t us[TIME_REPORTED])
{
	return us[STEP_PART_DATA] + us[STEP_PART_COMPUTE] + us[STEP_PART_RECOMPUTE];
}

/* The longest own work of any rank of each group since the last mark. */
static void find_slowest(struct account *a, int64_t step)
{
	int64_t us[TIME_REPORTED];
	memset(a->slowest, 0, (size_t)a->most * sizeof *a->slowest);
	for (struct account_rank *r = a->ranks; r < a->ranks + a->world; r++)
		if (r->ready) {
			since_mark(r, step, us);
			a->slowest[r->group] = larger(a->slowest[r->group], own_work(us));
		}
}

/* Takes the wait for the slowest rank of the group out of the rank's communication. */
static void take_wait(struct account *a, const struct account_rank *r,
		      const int64_t us[TIME_REPORTED])
{
	int64_t wait = a->slowest[r->group] - own_work(us), transfers = 0;
	for (int i = 0; i < STEP_PART_COUNT; i++)
		transfers += time_part_transfers(part_of(i)) ? us[i] : 0;
	for (int i = 0; i < STEP_PART_COUNT && wait > 0; i++) {
		if (!time_part_transfers(part_of(i)))
			continue;
		int64_t taken = supervise_marks_share(us[i], wait, transfers);
		move(a, part_of(i), TIME_SLOWEST, taken);
		a->marked[i] -= taken;
		a->marked[TIME_SLOWEST - TIME_STEP] += taken;
	}
}

/* What the ranks did up to this step, which all of them have reported. */
static void mark_step(struct account *a, int64_t step)
{
	struct account_report upto;
	int64_t us[TIME_REPORTED];
	find_slowest(a, step);
	a->fresh = 0;
	for (struct account_rank *r = a->ranks; r < a->ranks + a->world; r++) {
		if (!r->ready)
			continue;
		since_mark(r, step, us);
		for (int i = 0; i < TIME_REPORTED; i++)
			a->marked[i] += us[i];
		take_wait(a, r, us);
		interpolate(&r->mark, &r->last, step, &upto);
		r->mark = upto;
		r->fresh = r->last.step > step;
		a->fresh += r->fresh;
	}
	a->step = step;
	supervise_marks_add(&a->marks, step, a->marked);
}

/* The step that every rank has reported. */
static int64_t common_step(const struct account *a)
{
	int64_t step = INT64_MAX;
	for (int r = 0; r < a->world; r++)
		if (a->ranks[r].ready)
			step = lesser(step, a->ranks[r].last.step);
	return step;
}

/* --- the end of a generation ------------------------------------------------------------ */

static int64_t reported_until(const struct account_rank *r)
{
	return r->ready_at + r->booked;
}

static void end_training(struct account *a, struct account_rank *r)
{
	if (r->ready && !r->ended)
		r->ended_at = a->now;
	r->ended = true;
}

/* The last step that any rank has reported, and the time at which it ended; -1: no rank was ready. */
static int64_t find_last_step(const struct account *a, int64_t *ended_at)
{
	int64_t step = -1;
	*ended_at = 0;
	for (const struct account_rank *r = a->ranks; r < a->ranks + a->world; r++) {
		if (!r->ready || r->last.step < step)
			continue;
		*ended_at = r->last.step > step ? reported_until(r)
						: larger(*ended_at, reported_until(r));
		step = r->last.step;
	}
	return step;
}

/* What the rank has reported beyond the last mark, and what it has not reported. The last step ended at
 * this time. */
static void settle_rank(struct account *a, struct account_rank *r, int64_t step, int64_t step_ended)
{
	int64_t rest = r->ended_at - reported_until(r);
	int64_t trained = r->finished || r->last.step >= step ? 0 : step_ended - reported_until(r);
	for (int i = 0; i < TIME_REPORTED; i++)
		a->marked[i] += r->last.us[i] - r->mark.us[i];
	trained = larger(0, lesser(trained, rest));
	a->marked[TIME_UNREPORTED - TIME_STEP] += trained;
	move(a, TIME_UNREPORTED, r->finished ? r->after : TIME_LOST, rest - trained);
	r->ready = false;
}

void supervise_account_settle(struct account *a, int64_t now)
{
	int64_t ended_at, step;
	supervise_account_advance(a, now);
	step = find_last_step(a, &ended_at);
	if (step < 0 || (a->opaque && !a->began))
		return;
	mark_step(a, common_step(a));
	for (struct account_rank *r = a->ranks; r < a->ranks + a->world; r++)
		if (r->ready) {
			end_training(a, r);
			settle_rank(a, r, step, ended_at);
		}
	a->step = step;
	supervise_marks_add(&a->marks, step, a->marked);
}

/* Every rank of the generation accrues to this part from now on. */
static void end_ranks(struct account *a, enum time_part part)
{
	for (struct account_rank *r = a->ranks; r < a->ranks + a->world; r++) {
		end_training(a, r);
		accrue(a, r, part);
	}
}

void supervise_account_lose(struct account *a, int64_t now)
{
	supervise_account_advance(a, now);
	if (!a->started)
		return;
	a->lost = true;
	end_ranks(a, TIME_RESTART);
}

void supervise_account_stop(struct account *a, int64_t now)
{
	supervise_account_advance(a, now);
	end_ranks(a, TIME_STOP);
}

/* --- a generation ------------------------------------------------------------------- */

void supervise_account_generation(struct account *a, int64_t now, int world)
{
	if (a->continues) /* its ranks were ready, and begin again */
		supervise_account_lose(a, now);
	supervise_account_settle(a, now);
	begin_ranks(a, world, a->lost ? TIME_RESTART : TIME_START);
	a->started = true;
}

void supervise_account_group(struct account *a, int rank, int group)
{
	a->ranks[rank].group = group < a->most ? group : 0;
}

/* What was done after this step was for nothing. */
static void return_to(struct account *a, int64_t step)
{
	int64_t was[TIME_TRAINED];
	memcpy(was, a->marked, sizeof was);
	if (!supervise_marks_return(&a->marks, step, a->marked))
		supervise_marks_add(&a->marks, step, a->marked);
	for (int i = 0; i < TIME_TRAINED; i++)
		move(a, part_of(i), TIME_LOST, was[i] - a->marked[i]);
	a->step = step;
}

void supervise_account_ready(struct account *a, int64_t now, int rank, int64_t step)
{
	struct account_rank *r = &a->ranks[rank];
	supervise_account_advance(a, now);
	if (r->ready || r->ended)
		return;
	if (!a->continues)
		return_to(a, step);
	a->continues = r->ready = true;
	r->ready_at = a->now;
	r->last.step = r->mark.step = a->step;
	accrue(a, r, TIME_UNREPORTED);
}

/* Nothing is reported of any rank yet. */
static void continue_after(struct account *a, int64_t step)
{
	return_to(a, step);
	for (struct account_rank *r = a->ranks; r < a->ranks + a->world; r++)
		if (r->ready)
			r->last.step = r->mark.step = a->step;
}

void supervise_account_begin(struct account *a, int64_t now, int rank, int64_t step, int64_t since)
{
	struct account_rank *r = &a->ranks[rank];
	supervise_account_advance(a, now);
	if (!r->ready || r->ended || r->booked)
		return;
	if (!a->began)
		continue_after(a, step);
	a->began = true;
	since = lesser(larger(since, r->ready_at), a->now);
	move(a, TIME_UNREPORTED, a->lost ? TIME_RESTART : TIME_START, since - r->ready_at);
	r->ready_at = since;
}

void supervise_account_finished(struct account *a, int64_t now, int rank, bool leaves)
{
	struct account_rank *r = &a->ranks[rank];
	supervise_account_advance(a, now);
	if (!r->ready || r->ended)
		return;
	r->finished = true;
	r->after = leaves ? TIME_RESTART : TIME_STOP;
	end_training(a, r);
	accrue(a, r, r->after);
}

/* Books what is more than in the rank's last report. If the rank's message that it was ready came late,
 * it reports more than there is room for: then each part is booked by its share, and the next report
 * brings the rest. */
static void book(struct account *a, struct account_rank *r, const struct account_report *report)
{
	int64_t room = larger(0, (r->ended ? r->ended_at : a->now) - reported_until(r));
	int64_t more[TIME_REPORTED], all = 0, upto = 0, booked = 0;
	for (int i = 0; i < TIME_REPORTED; i++) {
		more[i] = larger(0, report->us[i] - r->last.us[i]);
		all += more[i];
	}
	for (int i = 0; i < TIME_REPORTED; i++) {
		upto += more[i];
		int64_t part = (all > room ? supervise_marks_share(room, upto, all) : upto) -
			       booked;
		booked += part;
		r->last.us[i] += part;
		move(a, TIME_UNREPORTED, part_of(i), part);
	}
	r->booked += booked;
	r->last.step = larger(r->last.step, report->step);
	r->last.peak_bytes = report->peak_bytes;
}

void supervise_account_report(struct account *a, int64_t now, int rank,
			      const struct account_report *report)
{
	struct account_rank *r = &a->ranks[rank];
	supervise_account_advance(a, now);
	if (!r->ready)
		return;
	a->began = true;
	book(a, r, report);
	if (r->fresh || r->last.step <= a->step)
		return;
	r->fresh = true;
	if (++a->fresh == a->world)
		mark_step(a, common_step(a));
}
