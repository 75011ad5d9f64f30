#include "launcher/rundir/goodput.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
	LINE_BYTES = 8192, /* a longer line is damaged */
	HEAD_BYTES = 160,  /* of a line, in which its generation is */
	PARSED =
		2, /* lines of a generation, besides its last one: its first and when it was ready */
	BACK = 1024 /* generations that lost steps may have been trained by */
};

/* The sums of a line. */
struct sums {
	int64_t wall, us[TIME_PART_COUNT];
};

struct rundir_goodput_reader {
	struct rundir_goodput_row *rows;
	size_t n, room;
	struct sums before;
	bool failed; /* no memory */
	/* The lines of one generation after its first ones: only the last of them counts. */
	int64_t generation;
	int parsed;
	char last[LINE_BYTES];
	size_t last_len;
};

/* --- the sums of rows ----------------------------------------------------------------- */

static void add(struct rundir_goodput_row *row, const struct sums *d)
{
	row->wall += d->wall;
	for (int i = 0; i < TIME_PART_COUNT; i++)
		row->us[i] += d->us[i];
}

static struct sums difference(const struct sums *a, const struct sums *b)
{
	struct sums d = { .wall = a->wall - b->wall };
	for (int i = 0; i < TIME_PART_COUNT; i++)
		d.us[i] = a->us[i] - b->us[i];
	return d;
}

/* Whether muster has only started in this time. */
static bool only_starts(const struct sums *d)
{
	for (int i = 0; i < TIME_PART_COUNT; i++)
		if (i != TIME_START && i != TIME_IDLE && d->us[i])
			return false;
	return d->us[TIME_START] > 0;
}

/* Opens a row; if there is no room for it, the last row goes on. */
static struct rundir_goodput_row *open_row(struct rundir_goodput_reader *r)
{
	struct rundir_goodput_row *last = r->n ? &r->rows[r->n - 1] : NULL;
	if (r->n == RUNDIR_GOODPUT_MOST)
		return last;
	if (r->n == r->room) {
		size_t room = r->room ? 2 * r->room : 16;
		struct rundir_goodput_row *rows = reallocarray(r->rows, room, sizeof *rows);
		r->failed |= !rows;
		if (!rows)
			return last;
		r->rows = rows;
		r->room = room;
	}
	r->rows[r->n] = (struct rundir_goodput_row){ .since = NAN };
	return &r->rows[r->n++];
}

/* The last row's generation has found that `us` microseconds of a part were for nothing. Takes them out of
 * the generations that had them, the latest first. Returns how many there were. */
static int64_t lose_earlier(struct rundir_goodput_reader *r, int part, int64_t us)
{
	struct rundir_goodput_row *now = &r->rows[r->n - 1];
	int64_t left = us;
	size_t stop = r->n > BACK ? r->n - BACK : 0;
	for (size_t k = r->n - 1; left > 0 && k-- > stop;) {
		struct rundir_goodput_row *then = &r->rows[k];
		int64_t x = then->us[part] < left ? then->us[part] : left;
		if (x <= 0)
			continue;
		then->us[part] -= x;
		then->us[TIME_LOST] += x;
		now->us[part] += x;
		now->us[TIME_LOST] -= x;
		left -= x;
	}
	return us - left;
}

/* If steps were lost in this time, the parts from which they were taken have shrunk. */
static void charge_lost(struct rundir_goodput_reader *r, const struct sums *d)
{
	int64_t left = d->us[TIME_LOST];
	for (int i = TIME_STEP; i < TIME_STEP + TIME_TRAINED && left > 0; i++)
		if (d->us[i] < 0)
			left -= lose_earlier(r, i, -d->us[i] < left ? -d->us[i] : left);
}

/* --- lines ------------------------------------------------------------------------------ */

static void take_line(struct rundir_goodput_reader *r, const struct rundir_time_line *l)
{
	struct sums now = { .wall = llround(1e6 * l->wall_s) };
	rundir_time_parts(l, now.us);
	bool again = now.wall < r->before.wall ||
		     time_parts_sum(now.us) < time_parts_sum(r->before.us);
	if (again) { /* the file is another one from here on */
		r->n = 0;
		r->before = (struct sums){ 0 };
	}
	struct sums d = difference(&now, &r->before);
	struct rundir_goodput_row *row = r->n ? &r->rows[r->n - 1] : NULL;
	bool same = row && row->generation == l->generation;
	bool early = row && (same || !only_starts(&d)); /* the time is that of the last row */
	if (early)
		add(row, &d);
	if (same)
		charge_lost(r, &d);
	else if (!(row = open_row(r)))
		return;
	if (!early)
		add(row, &d);
	row->generation = l->generation;
	row->since = isnan(row->since) ? l->time : row->since;
	row->ranks = l->ranks;
	row->devices = l->devices;
	r->before = now;
}

static void take_text(struct rundir_goodput_reader *r, const char *text, size_t len)
{
	struct rundir_time_line l;
	if (rundir_time_parse(text, len, &l))
		take_line(r, &l);
}

static void take_last(struct rundir_goodput_reader *r)
{
	if (r->last_len)
		take_text(r, r->last, r->last_len);
	r->last_len = 0;
}

/* The generation of a line, without parsing it; -1: it is no whole line. */
static int64_t find_generation(const char *text, size_t len)
{
	static const char begin[] = "{\"time\":", key[] = "\"generation\":";
	size_t most = len < HEAD_BYTES ? len : HEAD_BYTES;
	int64_t number = 0;
	if (len < sizeof begin || len > LINE_BYTES || memcmp(text, begin, sizeof begin - 1) ||
	    text[len - 1] != '}')
		return -1;
	const char *at = memmem(text, most, key, sizeof key - 1);
	if (!at)
		return -1;
	at += sizeof key - 1;
	if (at == text + most || !isdigit((unsigned char)*at))
		return -1;
	for (; at < text + most && isdigit((unsigned char)*at) && number <= UINT32_MAX; at++)
		number = 10 * number + (*at - '0');
	return number;
}

void rundir_goodput_feed(void *reader, const char *text, size_t len)
{
	struct rundir_goodput_reader *r = reader;
	int64_t generation = find_generation(text, len);
	if (generation < 0)
		return;
	if (generation != r->generation) {
		take_last(r);
		r->generation = generation;
		r->parsed = 0;
	}
	if (r->parsed < PARSED) {
		take_text(r, text, len);
		r->parsed++;
	} else {
		memcpy(r->last, text, len);
		r->last_len = len;
	}
}

struct rundir_goodput_reader *rundir_goodput_open(struct err *e)
{
	struct rundir_goodput_reader *r = calloc(1, sizeof *r);
	if (!r)
		err_set(e, ERR_NOMEM, "no memory to read the time of a run");
	else
		r->generation = -1;
	return r;
}

/* --- the result --------------------------------------------------------------------------- */

static void finish_row(struct rundir_goodput *g, struct rundir_goodput_row *row)
{
	row->effective = llround((double)row->wall * rundir_goodput_share(row));
	g->all.wall += row->wall;
	for (int i = 0; i < TIME_PART_COUNT; i++)
		g->all.us[i] += row->us[i];
	g->all.effective += row->effective;
	g->all.generation = row->generation;
	g->all.since = row->since;
	g->all.ranks = row->ranks;
	g->all.devices = row->devices;
}

static bool is_later(const struct rundir_goodput_reader *r, const struct rundir_time_line *l)
{
	int64_t us[TIME_PART_COUNT];
	rundir_time_parts(l, us);
	return llround(1e6 * l->wall_s) > r->before.wall &&
	       time_parts_sum(us) >= time_parts_sum(r->before.us);
}

int rundir_goodput_close(struct rundir_goodput_reader *r, const struct rundir_time_line *last,
			 struct rundir_goodput *out, struct err *e)
{
	take_last(r);
	if (last && is_later(r, last))
		take_line(r, last);
	bool failed = r->failed;
	if (out && !failed) {
		*out = (struct rundir_goodput){ .rows = r->rows, .n = r->n };
		for (size_t i = 0; i < out->n; i++)
			finish_row(out, &out->rows[i]);
		r->rows = NULL;
	}
	free(r->rows);
	free(r);
	return failed ? err_set(e, ERR_NOMEM, "no memory for the generations of a run") : 0;
}

int rundir_goodput_read(const char *run, const struct rundir_time_line *last,
			struct rundir_goodput *out, struct err *e)
{
	struct rundir_goodput_reader *r = rundir_goodput_open(e);
	*out = (struct rundir_goodput){ 0 };
	if (!r)
		return -1;
	if (rundir_time_texts(run, 0, rundir_goodput_feed, r, e)) {
		rundir_goodput_close(r, NULL, NULL, NULL);
		return -1;
	}
	return rundir_goodput_close(r, last, out, e);
}

void rundir_goodput_fini(struct rundir_goodput *g)
{
	free(g->rows);
	*g = (struct rundir_goodput){ 0 };
}

double rundir_goodput_share(const struct rundir_goodput_row *row)
{
	/* Lines that contradict each other may leave less than no time to a part. */
	return fmin(fmax(time_parts_goodput(row->us), 0), 1);
}

double rundir_goodput_total_s(const struct rundir_goodput_row *row)
{
	return 1e-6 * (double)time_parts_sum(row->us);
}
