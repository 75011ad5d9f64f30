#include "agent/tools/bench_plan.h"

#include "base/human.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const part_keys[STEP_PART_COUNT] = {
#define STEP_PART_KEY(with, ENUM, member, name, transfers, doc) #member,
	STEP_PARTS(STEP_PART_KEY, )
#undef STEP_PART_KEY
};

double bench_plan_time_error(const struct bench_plan_form *f)
{
	return f->predicted.total / f->measured.total - 1;
}

double bench_plan_paired_error(const struct bench_plan_form *f)
{
	return f->predicted.total / (f->measured.total * (f->speed > 0 ? f->speed : 1)) - 1;
}

double bench_plan_memory_error(const struct bench_plan_form *f)
{
	return f->predicted_bytes / f->measured_bytes - 1;
}

/* --- Text --- */

struct errors {
	double mean, most;
};

static struct errors errors_of(const struct bench_plan_form *forms, int n,
			       double (*of)(const struct bench_plan_form *))
{
	struct errors e = { 0 };
	for (int i = 0; i < n; i++) {
		e.mean += fabs(of(&forms[i])) / n;
		e.most = fmax(e.most, fabs(of(&forms[i])));
	}
	return e;
}

/* Shortens "parallel.tp=2 parallel.pp=2" to "tp=2 pp=2". */
static const char *short_words(const char *words, char *out, size_t size)
{
	size_t n = 0;
	*out = '\0';
	for (const char *at = words; *at && n + 1 < size; at++) {
		if ((at == words || at[-1] == ' ') && !strncmp(at, "parallel.", 9))
			at += 9;
		out[n++] = *at;
		out[n] = '\0';
	}
	return *out ? out : "one agent";
}

static void print_parts(const struct bench_plan_form *f)
{
	for (int measured = 0; measured < 2; measured++) {
		const struct plan_time *t = measured ? &f->measured : &f->predicted;
		double left = t->total;
		printf("          %-9s", measured ? "measured" : "predicted");
		for (int i = 0; i < STEP_PART_OTHER; i++) {
			left -= t->parts[i];
			if (f->predicted.parts[i] > 0 || f->measured.parts[i] > 1e-4 * t->total)
				printf("  %s %.1f", part_keys[i], 1e3 * t->parts[i]);
		}
		printf("  other %.1f ms\n", 1e3 * left);
	}
}

static void print_best(const struct bench_plan_form *forms, int n)
{
	char words[128];
	for (int i = 0; i < n; i++) {
		const struct bench_plan_form *chosen = &forms[i], *best = chosen;
		bool seen = false;
		int alike = 0;
		for (int j = 0; j < n; j++) {
			const struct bench_plan_form *f = &forms[j];
			if (strcmp(f->job->model, forms[i].job->model))
				continue;
			seen |= j < i;
			alike++;
			chosen = f->predicted.total < chosen->predicted.total ? f : chosen;
			best = f->measured.total < best->measured.total ? f : best;
		}
		if (!seen && alike > 1)
			printf("%-11s the fastest as predicted, %s, loses %.1f %% to the fastest\n",
			       chosen->job->model,
			       short_words(chosen->job->layout, words, sizeof words),
			       100 * (chosen->measured.total / best->measured.total - 1));
	}
}

void bench_plan_print(const struct bench_plan_form *forms, int n, bool all_parts)
{
	struct errors time = errors_of(forms, n, bench_plan_time_error),
		      memory = errors_of(forms, n, bench_plan_memory_error);
	struct errors paired = errors_of(forms, n, bench_plan_paired_error);
	char words[128], a[HUMAN], b[HUMAN];
	printf("%-11s %-42s %6s %10s %10s %7s %6s %7s %10s %10s %7s\n", "model", "layout", "agents",
	       "predicted", "measured", "", "speed", "paired", "predicted", "measured", "");
	for (int i = 0; i < n; i++) {
		const struct bench_plan_form *f = &forms[i];
		printf("%-11s %-42s %6d %8.1fms %8.1fms %+6.1f%% %6.2f %+6.1f%% %10s %10s "
		       "%+6.1f%%\n",
		       f->job->model, short_words(f->job->layout, words, sizeof words), f->world,
		       1e3 * f->predicted.total, 1e3 * f->measured.total,
		       100 * bench_plan_time_error(f), f->speed, 100 * bench_plan_paired_error(f),
		       human_bytes(f->predicted_bytes, a), human_bytes(f->measured_bytes, b),
		       100 * bench_plan_memory_error(f));
		if (all_parts)
			print_parts(f);
	}
	printf("\ntime     off by %.1f %% in the mean, %.1f %% at most\n", 100 * time.mean,
	       100 * time.most);
	printf("paired   off by %.1f %% in the mean, %.1f %% at most: at the calibration's speed "
	       "of matrix products\n",
	       100 * paired.mean, 100 * paired.most);
	printf("memory   off by %.1f %% in the mean, %.1f %% at most\n", 100 * memory.mean,
	       100 * memory.most);
	print_best(forms, n);
}

/* --- JSON --- */

static json_t *time_json(const struct plan_time *t)
{
	json_t *o = json_pack("{s:f}", "step_s", t->total);
	double left = t->total;
	for (int i = 0; i < STEP_PART_OTHER; i++) {
		char name[32];
		snprintf(name, sizeof name, "%s_s", part_keys[i]);
		json_object_set_new(o, name, json_real(t->parts[i]));
		left -= t->parts[i];
	}
	json_object_set_new(o, "other_s", json_real(left));
	return o;
}

json_t *bench_plan_json(const struct bench_plan_form *forms, int n)
{
	json_t *list = json_array();
	struct errors time = errors_of(forms, n, bench_plan_time_error),
		      memory = errors_of(forms, n, bench_plan_memory_error);
	struct errors paired = errors_of(forms, n, bench_plan_paired_error);
	for (int i = 0; i < n; i++) {
		const struct bench_plan_form *f = &forms[i];
		json_array_append_new(
			list,
			json_pack("{s:s, s:s, s:i, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
				  "model", f->job->model, "layout", f->job->layout, "agents",
				  f->world, "predicted", time_json(&f->predicted), "measured",
				  time_json(&f->measured), "best_s", f->seconds[0], "error",
				  bench_plan_time_error(f), "speed", f->speed, "paired_error",
				  bench_plan_paired_error(f), "predicted_bytes", f->predicted_bytes,
				  "measured_bytes", f->measured_bytes, "memory_error",
				  bench_plan_memory_error(f)));
	}
	return json_pack("{s:o, s:{s:f, s:f}, s:{s:f, s:f}, s:{s:f, s:f}}", "forms", list, "time",
			 "mean", time.mean, "most", time.most, "paired", "mean", paired.mean,
			 "most", paired.most, "memory", "mean", memory.mean, "most", memory.most);
}
