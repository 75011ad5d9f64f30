#include "launcher/exports/csv.h"

#include "base/messages.h"
#include "launcher/exports/series.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const columns[] = {
#define COLUMN(name, ...) #name,
	"time",
	"generation",
	MSG_METRICS_FIELDS(COLUMN) "predicted_s",
#undef COLUMN
};
enum { COLUMNS = sizeof columns / sizeof *columns };

struct eval {
	int64_t step;
	double loss;
};

struct table {
	FILE *out;
	struct eval *evals; /* ascending steps */
	size_t n, room, next;
	bool no_memory, begun;
};

static void note_event(void *arg, const struct rundir_line *l, int64_t step)
{
	struct table *t = arg;
	const json_t *loss = json_object_get(l->fields, "loss");
	if (!l->has_event || strcmp(l->event, "eval") || step < 0 || !json_is_number(loss))
		return;
	if (t->n == t->room) {
		size_t room = t->room ? 2 * t->room : 64;
		struct eval *evals = reallocarray(t->evals, room, sizeof *evals);
		t->no_memory |= !evals;
		if (!evals)
			return;
		t->evals = evals;
		t->room = room;
	}
	t->evals[t->n++] = (struct eval){ step, json_number_value(loss) };
}

/* As short as the number can be read back from. */
static void put_real(FILE *out, double x)
{
	char text[40];
	snprintf(text, sizeof text, "%.15g", x);
	if (strtod(text, NULL) != x)
		snprintf(text, sizeof text, "%.17g", x);
	fputs(text, out);
}

static void put_quoted(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"')
			fputc('"', out);
		fputc(*text, out);
	}
	fputc('"', out);
}

static void put_value(FILE *out, const json_t *value)
{
	if (json_is_integer(value))
		fprintf(out, "%" PRId64, (int64_t)json_integer_value(value));
	else if (json_is_real(value))
		put_real(out, json_real_value(value));
	else if (json_is_boolean(value))
		fputs(json_is_true(value) ? "1" : "0", out);
	else if (json_is_string(value))
		put_quoted(out, json_string_value(value));
}

static void put_names(FILE *out)
{
	for (int i = 0; i < COLUMNS; i++)
		fprintf(out, "%s,", columns[i]);
	fputs("eval_loss\r\n", out);
}

static void put_step(void *arg, const struct rundir_line *l, int64_t step)
{
	struct table *t = arg;
	if (!t->begun)
		put_names(t->out);
	t->begun = true;
	if (ferror(t->out))
		return;
	for (int i = 0; i < COLUMNS; i++) {
		put_value(t->out, json_object_get(l->fields, columns[i]));
		fputc(',', t->out);
	}
	while (t->next < t->n && t->evals[t->next].step < step)
		t->next++;
	if (t->next < t->n && t->evals[t->next].step == step)
		put_real(t->out, t->evals[t->next].loss);
	fputs("\r\n", t->out);
}

int exports_csv(const char *run, FILE *out, int64_t *damaged, struct err *e)
{
	struct table t = { .out = out };
	const struct exports_series_reader reader = { note_event, put_step, &t };
	int rc = exports_series_read(run, &reader, damaged, e);
	if (!rc && t.no_memory)
		rc = err_set(e, ERR_NOMEM, "%s: no memory for its evaluations", run);
	free(t.evals);
	return rc;
}
