#include "tests/bench/agents/agents.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS_MOST = 8 };

/* What the last column compares: the value divided by the number of ranks, or the value itself. */
enum compared { PER_RANK, AS_IT_IS };

/* clang-format off */
static const struct {
	const char *text;
	size_t at;
	enum compared by;
	double unit;
} rows[] = {
	{ "plan and open, s",                   offsetof(struct agents_figures, plan),               PER_RANK, 1 },
	{ "start to ready, s",                  offsetof(struct agents_figures, start),              PER_RANK, 1 },
	{ "  CPU s",                            offsetof(struct agents_figures, start_cpu),          PER_RANK, 1 },
	{ "  CPU s of the stand-in",            offsetof(struct agents_figures, start_cpu_stand_in), PER_RANK, 1 },
	{ "training, CPU s per s",              offsetof(struct agents_figures, steady_cpu),         PER_RANK, 1 },
	{ "  messages per s",                    offsetof(struct agents_figures, steady_messages),    PER_RANK, 1 },
	{ "a rank is killed, ms to the loss",   offsetof(struct agents_figures, kill.seen),          AS_IT_IS, 1e-3 },
	{ "  from there to ready, s",           offsetof(struct agents_figures, kill.back),          PER_RANK, 1 },
	{ "  CPU s",                            offsetof(struct agents_figures, kill.cpu),           PER_RANK, 1 },
	{ "  agents replaced",                  offsetof(struct agents_figures, kill.replaced),      AS_IT_IS, 1 },
	{ "a rank is silent, s to the loss",    offsetof(struct agents_figures, silent.seen),        AS_IT_IS, 1 },
	{ "  from there to ready, s",           offsetof(struct agents_figures, silent.back),        PER_RANK, 1 },
	{ "  CPU s",                            offsetof(struct agents_figures, silent.cpu),         PER_RANK, 1 },
	{ "  agents replaced",                  offsetof(struct agents_figures, silent.replaced),    AS_IT_IS, 1 },
	{ "a node is lost, ms to the loss",     offsetof(struct agents_figures, node.seen),          AS_IT_IS, 1e-3 },
	{ "  from there to ready, s",           offsetof(struct agents_figures, node.back),          PER_RANK, 1 },
	{ "  CPU s",                            offsetof(struct agents_figures, node.cpu),           PER_RANK, 1 },
	{ "  agents lost",                      offsetof(struct agents_figures, node.replaced),      AS_IT_IS, 1 },
	{ "stop to exit, s",                    offsetof(struct agents_figures, stop),               PER_RANK, 1 },
	{ "  CPU s",                            offsetof(struct agents_figures, stop_cpu),           PER_RANK, 1 },
	{ "memory for the agents, MiB",         offsetof(struct agents_figures, start_bytes),        PER_RANK, 1 << 20 },
	{ "peak memory, MiB",                   offsetof(struct agents_figures, peak_bytes),         PER_RANK, 1 << 20 },
	{ "descriptors",                        offsetof(struct agents_figures, descriptors),        PER_RANK, 1 },
	{ "events.jsonl, MiB",                  offsetof(struct agents_figures, events_bytes),       PER_RANK, 1 << 20 },
};
/* clang-format on */

static double value_of(const struct agents_figures *f, size_t row)
{
	return *(const double *)((const char *)f + rows[row].at) / rows[row].unit;
}

static void print_table(const int *numbers, const struct agents_figures *figures, int n)
{
	printf("%-34s", "agents");
	for (int i = 0; i < n; i++)
		printf(" %9d", numbers[i]);
	if (n > 1)
		printf("   last : first");
	printf("\n");
	for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
		printf("%-34s", rows[row].text);
		for (int i = 0; i < n; i++)
			printf(" %9.3f", value_of(&figures[i], row));
		double first = value_of(&figures[0], row), last = value_of(&figures[n - 1], row);
		if (rows[row].by == PER_RANK)
			last *= (double)numbers[0] / numbers[n - 1];
		if (n > 1)
			printf("   %.2f%s", last / first,
			       rows[row].by == PER_RANK ? " per agent" : "");
		printf("\n");
	}
}

static int measure(int *numbers, int n)
{
	struct agents_figures figures[RUNS_MOST];
	for (int i = 0; i < n; i++) {
		if (numbers[i] < AGENTS_TP * AGENTS_PP || numbers[i] % (AGENTS_TP * AGENTS_PP)) {
			fprintf(stderr, "agents: %d is not a multiple of %d\n", numbers[i],
				AGENTS_TP * AGENTS_PP);
			return 2;
		}
		fprintf(stderr, "%d agents …\n", numbers[i]);
		if (!agents_run(numbers[i], &figures[i]))
			return 1;
	}
	print_table(numbers, figures, n);
	return 0;
}

int main(int argc, char **argv)
{
	int numbers[RUNS_MOST] = { 1000, 2000, 5000, 10000 }, n = 4;
	if (argc == 4 && !strcmp(argv[1], "supervise"))
		return agents_supervise(atoi(argv[2]), argv[3]);
	if (argc == 3 && !strcmp(argv[1], "stand-in"))
		return agents_stand_in(argv[2]);
	if (argc > 1 && !strcmp(argv[1], "--each")) {
		setenv(AGENTS_EACH, "1", 1);
		argc--;
		argv++;
	}
	if (argc > 1)
		n = argc - 1 < RUNS_MOST ? argc - 1 : RUNS_MOST;
	for (int i = 0; argc > 1 && i < n; i++)
		numbers[i] = atoi(argv[i + 1]);
	return measure(numbers, n);
}
