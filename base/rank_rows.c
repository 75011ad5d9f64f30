#include "base/rank_rows.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum { PROGRESS_COLUMNS = 9, TIMES_COLUMNS = 4, REPORT_COLUMNS = 3 };

static const int64_t most = INT64_C(1) << 62; /* as of the fields INT64 and COUNT (base/fields.h) */

static const enum msg_type reports[REPORTS_COUNT] = {
#define REPORT_TYPE(type) [REPORT_##type] = type,
	MSG_REPORTS(REPORT_TYPE)
#undef REPORT_TYPE
};

int msg_report_index(enum msg_type type)
{
	int i = 0;
	while (i < REPORTS_COUNT && reports[i] != type)
		i++;
	return i < REPORTS_COUNT ? i : -1;
}

enum msg_type msg_report_type(int index)
{
	return reports[index];
}

/* What is not finite is not known; the sum stays 0. */
static json_int_t to_ns(double seconds)
{
	return isfinite(seconds) ? llround(fmin(fmax(1e9 * seconds, 0), (double)most)) : 0;
}

json_t *msg_progress_row(int rank, const struct msg_progress *m)
{
	return json_pack("[i, I, s, I, I, I, I, I, I]", rank, (json_int_t)m->step, m->phase,
			 (json_int_t)m->count, (json_int_t)m->active, (json_int_t)m->done,
			 to_ns(m->own_s), to_ns(m->delay_s), to_ns(m->stalled_s));
}

json_t *msg_times_row(int rank, const struct msg_times *m)
{
	return json_pack("[i, I, I, O]", rank, (json_int_t)m->step, (json_int_t)m->peak_bytes,
			 m->us);
}

json_t *msg_report_row(int rank, enum msg_type type, json_t *body)
{
	return json_pack("[i, s, O]", rank, msg_word(type), body);
}

/* Reads `n` integers of the row from a column on. False: one is missing, or not in its range. */
static bool read_integers(const json_t *row, size_t from, int n, int64_t least, int64_t *out)
{
	for (int i = 0; i < n; i++) {
		const json_t *v = json_array_get(row, from + (size_t)i);
		out[i] = json_integer_value(v);
		if (!json_is_integer(v) || out[i] < least || out[i] > most)
			return false;
	}
	return true;
}

static int report_invalid(const char *what, struct err *e)
{
	return err_set(e, ERR_PROTO, "message node_progress: a row of %s is invalid", what);
}

int msg_progress_row_read(const json_t *row, int *rank, struct msg_progress *m, struct err *e)
{
	int64_t first[2], rest[6];
	const char *phase = json_string_value(json_array_get(row, 2));
	if (json_array_size(row) != PROGRESS_COLUMNS || !phase ||
	    !read_integers(row, 0, 2, -1, first) || first[0] < 0 || first[0] > INT_MAX ||
	    !read_integers(row, 3, 6, 0, rest))
		return report_invalid("progress", e);
	*rank = (int)first[0];
	*m = (struct msg_progress){ .step = first[1],
				    .phase = phase,
				    .count = rest[0],
				    .active = rest[1],
				    .done = rest[2],
				    .own_s = 1e-9 * (double)rest[3],
				    .delay_s = 1e-9 * (double)rest[4],
				    .stalled_s = 1e-9 * (double)rest[5] };
	return 0;
}

int msg_times_row_read(const json_t *row, int *rank, struct msg_times *m, struct err *e)
{
	int64_t first[3];
	json_t *us = json_array_get(row, 3);
	if (json_array_size(row) != TIMES_COLUMNS || !json_is_array(us) ||
	    !read_integers(row, 0, 3, 0, first) || first[0] > INT_MAX)
		return report_invalid("times", e);
	*rank = (int)first[0];
	*m = (struct msg_times){ .step = first[1], .peak_bytes = first[2], .us = us };
	return 0;
}

/* NULL: no message of this name can be a row. */
static const enum msg_type *find_report(const char *name)
{
	for (int i = 0; name && i < REPORTS_COUNT; i++)
		if (!strcmp(name, msg_word(reports[i])))
			return &reports[i];
	return NULL;
}

int msg_report_row_read(const json_t *row, int *rank, enum msg_type *type, const json_t **body,
			struct err *e)
{
	int64_t number;
	const enum msg_type *known = find_report(json_string_value(json_array_get(row, 1)));
	const json_t *object = json_array_get(row, 2);
	if (json_array_size(row) != REPORT_COLUMNS || !known || !json_is_object(object) ||
	    !read_integers(row, 0, 1, 0, &number) || number > INT_MAX)
		return report_invalid("reports", e);
	*rank = (int)number;
	*type = *known;
	*body = object;
	return 0;
}
