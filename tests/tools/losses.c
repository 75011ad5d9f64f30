/*
 * losses — compares the losses of one run with those of another.
 *
 *     losses compare A/metrics.jsonl B/metrics.jsonl TOLERANCE [FROM TO]
 *         prints the largest relative difference of loss and gradient norm over steps FROM..TO
 *         (default: all of A's). Exits with 1 if it exceeds TOLERANCE, or if a step is missing.
 *         TOLERANCE 0 requires the same bits.
 *     losses final A/metrics.jsonl     prints the last step and its loss, with every digit
 *     losses repeats A/metrics.jsonl   exits with 1 if a step that was done twice (before and after
 *                                      a restart) did not give the same bits; prints how many were
 *     losses list A/metrics.jsonl A/events.jsonl
 *                                      prints every step's loss, gradient norm and learning rate,
 *                                      then every evaluation's loss, one per line, with all their
 *                                      bits; the later line of a step counts
 */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_MAX = 100000 };

struct series {
	bool have[STEPS_MAX];
	double loss[STEPS_MAX], norm[STEPS_MAX];
	int last, repeats, differ;
};

static int read_series(const char *path, struct series *s)
{
	FILE *f = fopen(path, "r");
	if (!f) {
		perror(path);
		return -1;
	}
	char *line = NULL;
	size_t cap = 0;
	s->last = -1;
	while (getline(&line, &cap, f) > 0) {
		json_t *o = json_loads(line, 0, NULL);
		json_int_t step = json_integer_value(json_object_get(o, "step"));
		json_t *loss = json_object_get(o, "loss"), *norm = json_object_get(o, "grad_norm");
		/* Evaluations are in the same file, without a gradient norm. */
		if (json_is_real(loss) && json_is_number(norm) && step >= 0 && step < STEPS_MAX) {
			if (s->have[step]) {
				s->repeats++;
				s->differ += s->loss[step] != json_real_value(loss);
			}
			s->have[step] = true;
			s->loss[step] = json_real_value(loss);
			s->norm[step] = json_number_value(norm);
			if (step > s->last)
				s->last = (int)step;
		}
		json_decref(o);
	}
	free(line);
	fclose(f);
	if (s->last < 0)
		fprintf(stderr, "%s: holds no step\n", path);
	return s->last < 0 ? -1 : 0;
}

static double relative(double a, double b)
{
	return a == b ? 0 : fabs(a - b) / fmax(fabs(a), fabs(b));
}

static int compare(const struct series *a, const struct series *b, double tolerance, int from,
		   int to)
{
	double worst_loss = 0, worst_norm = 0;
	int steps = 0;
	for (int i = from; i <= to; i++) {
		if (!a->have[i] && !b->have[i])
			continue;
		if (a->have[i] != b->have[i]) {
			printf("step %d: only one of the runs has it\n", i);
			return 1;
		}
		worst_loss = fmax(worst_loss, relative(a->loss[i], b->loss[i]));
		worst_norm = fmax(worst_norm, relative(a->norm[i], b->norm[i]));
		steps++;
	}
	printf("%d steps, largest relative difference: loss %.2e, gradient norm %.2e\n", steps,
	       worst_loss, worst_norm);
	/* The negated comparison also rejects NaN. */
	return steps == 0 || !(worst_loss <= tolerance) ||
	       !(worst_norm <= (tolerance > 0 ? 10 * tolerance : 0));
}

enum { LIST_MAX = 10000 };

/* Prints "word step value …" from the later line of each step, among the lines that have all the
 * keys. */
static int list(const char *path, const char *word, const char *const keys[], int n_keys)
{
	static char text[LIST_MAX][160];
	FILE *f = fopen(path, "r");
	char *line = NULL;
	size_t cap = 0;
	if (!f) {
		perror(path);
		return -1;
	}
	memset(text, 0, sizeof text);
	while (getline(&line, &cap, f) > 0) {
		json_t *o = json_loads(line, 0, NULL), *event = json_object_get(o, "event");
		json_int_t step = json_integer_value(json_object_get(o, "step"));
		int have = 0;
		char row[sizeof text[0]];
		int at = snprintf(row, sizeof row, "%s %lld", word, (long long)step);
		for (int k = 0; k < n_keys; k++) {
			have += json_is_number(json_object_get(o, keys[k]));
			at += snprintf(row + at, sizeof row - (size_t)at, " %a",
				       json_number_value(json_object_get(o, keys[k])));
		}
		bool due = event ? !strcmp(json_string_value(event), word) : !strcmp(word, "step");
		if (due && have == n_keys && step >= 0 && step < LIST_MAX)
			memcpy(text[step], row, sizeof row);
		json_decref(o);
	}
	free(line);
	fclose(f);
	for (int i = 0; i < LIST_MAX; i++)
		if (text[i][0])
			puts(text[i]);
	return 0;
}

static int list_run(const char *metrics, const char *events)
{
	static const char *const of_step[] = { "loss", "grad_norm", "lr" };
	return list(metrics, "step", of_step, 3) || list(events, "eval", of_step, 1) ? 1 : 0;
}

int main(int argc, char **argv)
{
	static struct series a, b;
	if (argc == 4 && !strcmp(argv[1], "list"))
		return list_run(argv[2], argv[3]);
	if (argc < 3 || read_series(argv[2], &a))
		return 2;
	if (!strcmp(argv[1], "final")) {
		printf("%d %.17g\n", a.last, a.loss[a.last]);
		return 0;
	}
	if (!strcmp(argv[1], "repeats")) {
		printf("%d steps repeated, %d with other bits\n", a.repeats, a.differ);
		return a.differ != 0;
	}
	if (strcmp(argv[1], "compare") || argc < 5 || read_series(argv[3], &b))
		return 2;
	int from = argc > 6 ? atoi(argv[5]) : 0, to = argc > 6 ? atoi(argv[6]) : a.last;
	return compare(&a, &b, atof(argv[4]), from, to < STEPS_MAX ? to : STEPS_MAX - 1);
}
