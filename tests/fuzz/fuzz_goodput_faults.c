/* Any bytes as a list of faults: they are refused in one line that begins with the file's name, or they give
 * rates and times that are in range and are the same when they are written and read again. A run with them
 * ends. */
#include "base/buf.h"
#include "launcher/goodput/run.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const struct goodput_faults *f)
{
	static struct goodput_faults back;
	json_t *doc = goodput_faults_json(f);
	char *text = doc ? json_dumps(doc, 0) : NULL;
	if (!text || goodput_faults_parse(text, strlen(text), "back", &back, NULL) ||
	    back.n != f->n)
		abort();
	for (int i = 0; i < f->n; i++)
		if (back.of[i].shows != f->of[i].shows || strcmp(back.of[i].name, f->of[i].name) ||
		    fabs(back.of[i].rate - f->of[i].rate) > 1e-9 * f->of[i].rate)
			abort();
	free(text);
	json_decref(doc);
}

static void run_with(const struct goodput_faults *f)
{
	static struct goodput_result r;
	const struct goodput_setup s = {
		.nodes = 8,
		.replicas = 4,
		.spares = 1,
		.seconds = 1e5,
		.costs = { .step = 1,
			   .closed = 1,
			   .hang = 60,
			   .respawn = 30,
			   .load = 9,
			   .person = 99 },
		.rules = { .warm = true,
			   .shrinks = true,
			   .restarts = 9,
			   .every = 100,
			   .copy_every = 9 },
		.faults = f,
	};
	goodput_run(&s, 1, &r);
	if (!r.endless && fabs(r.seconds - 1e5) > 1e-3)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct goodput_faults f;
	struct err e = ERR_INIT;
	if (goodput_faults_parse((const char *)data, size, "fuzz", &f, &e)) {
		if (e.code != ERR_USAGE || strncmp(e.text, "fuzz: ", 6) || strchr(e.text, '\n'))
			abort();
		return 0;
	}
	double rate = goodput_faults_rate(&f);
	if (!(rate >= 0) || !isfinite(rate))
		abort();
	check_again(&f);
	if (rate < 1e-3) /* a million faults take half a second */
		run_with(&f);
	return 0;
}
