/*
 * Tests every op of a backend against the specification (tests/conform/op_check.h): at the sizes of
 * its row and at random ones, with arrays on and off their alignment.
 *
 * usage: ops [--random N] [--seed S] [--few] [--here] [--only WORD] BACKEND …
 *   --random N   random sizes per op (default 6)
 *   --few        only the first, third and fourth size of each row, and one random size: for
 *                slow machines
 *                and checkers
 *   --here       test in this process, for tools that watch a single process
 *   --only WORD  ops with WORD in their names
 *
 * Another process tests the ops, since a failing op may make the device unusable. Then a new
 * process continues after that op. A backend that cannot be opened is skipped.
 */
#include "tests/conform/op_check.h"
#include "tests/conform/op_vary.h"
#include "tests/gpu/score.h"

#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OPS_MAX = 200, OP_SECONDS = 120 };

/* What the testing process has found so far. */
struct findings {
	bool open; /* the backend is open */
	char refused[OP_CHECK_WHY];
	int at; /* the op that is being tested */
	struct finding {
		bool ok;
		int sizes;
		char why[OP_CHECK_WHY];
	} ops[OPS_MAX];
};

struct settings {
	int random;
	uint64_t seed;
	bool few, here;
	const char *only;
};

static int list_ops(const struct settings *s, const struct op_test *list[OPS_MAX])
{
	int n = 0;
	for (const struct op_test *const *f = op_families; *f; f++)
		for (const struct op_test *t = *f; t->name && n < OPS_MAX; t++)
			if (!s->only || strstr(t->name, s->only))
				list[n++] = t;
	return n;
}

static bool try_sizes(struct op_checker *c, const struct op_test *t, const struct dims *d,
		      const struct op_draw *draw, struct finding *f)
{
	f->sizes++;
	return op_conforms(c, t, d, draw, f->why);
}

static bool try_op(struct op_checker *c, const struct op_test *t, const struct settings *s,
		   struct finding *f)
{
	int rows = 0;
	for (const struct dims *d = t->dims; d->n || d->s.batch; d++, rows++)
		if ((!s->few || rows == 0 || rows == 2 || rows == 3) &&
		    !try_sizes(c, t, d, &(struct op_draw){ .seed = s->seed + (uint64_t)rows }, f))
			return false;
	for (int i = 0; i < (s->few ? 1 : s->random); i++) {
		struct dims d;
		struct op_draw draw = { .shift = i % 3, .seed = s->seed + 100 + (uint64_t)i };
		if (op_vary(t, draw.seed, &d) && !try_sizes(c, t, &d, &draw, f))
			return false;
	}
	return true;
}

/* Tests, in a process, the ops from the first untested one on. */
static int test_rest(const char *backend_name, const struct settings *s, struct findings *found)
{
	const struct op_test *list[OPS_MAX];
	struct op_checker *c;
	struct err e = ERR_INIT;
	int n = list_ops(s, list);
	if (op_checker_open(backend_name, &c, &e)) {
		snprintf(found->refused, sizeof found->refused, "%s", e.text);
		return 1;
	}
	found->open = true;
	for (; found->at < n; found->at++) {
		struct finding *f = &found->ops[found->at];
		alarm(OP_SECONDS);
		f->ok = try_op(c, list[found->at], s, f);
		if (!f->ok) {
			found->at++;
			return 1; /* the device may be unusable now */
		}
	}
	op_checker_close(c);
	return 0;
}

/* 0 if that process ended by itself. */
static int in_process(const char *backend_name, const struct settings *s, struct findings *found)
{
	int status = 0;
	fflush(NULL);
	if (s->here) {
		test_rest(backend_name, s, found);
		return 0;
	}
	pid_t pid = fork();
	if (pid == 0)
		_exit(test_rest(backend_name, s, found));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* Collects one process's findings. false: no other process should follow. */
static bool run_process(const char *backend_name, const struct settings *s, const char *op,
			struct findings *found)
{
	found->open = false;
	int signal = in_process(backend_name, s, found);
	if (signal) {
		snprintf(found->ops[found->at++].why, OP_CHECK_WHY,
			 "%s %s: its process ended by signal %d%s", backend_name, op, signal,
			 signal == SIGALRM ? ", being out of time" : "");
		return true;
	}
	return found->open;
}

static void try_backend(const char *backend_name, const struct settings *s, struct score *score)
{
	const struct op_test *list[OPS_MAX];
	struct findings *found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int n = list_ops(s, list), printed = 0;
	bool more = found != MAP_FAILED && n > 0;
	while (more) {
		more = run_process(backend_name, s, list[found->at]->name, found) && found->at < n;
		for (; printed < found->at; printed++) {
			const struct finding *f = &found->ops[printed];
			score_check(score, f->ok, "%s %s, %d sizes%s%s", backend_name,
				    list[printed]->name, f->sizes, f->ok ? "" : ": ",
				    f->ok ? "" : f->why);
		}
	}
	if (!printed)
		score_skip(score, backend_name,
			   *found->refused ? found->refused : "it cannot be opened");
	else if (printed < n)
		score_check(score, false, "%s cannot be opened again: %s", backend_name,
			    found->refused);
	munmap(found, sizeof *found);
}

int main(int argc, char **argv)
{
	/* clang-format off */
	static const struct option options[] = {
		{ "random", required_argument, NULL, 'r' }, { "seed", required_argument, NULL, 's' },
		{ "few", no_argument, NULL, 'f' }, { "here", no_argument, NULL, 'h' },
		{ "only", required_argument, NULL, 'o' }, { 0 },
	};
	/* clang-format on */
	struct settings s = { .random = 6, .seed = 7 };
	struct score score = { 0 };
	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
		switch (c) {
		case 'r':
			s.random = atoi(optarg);
			break;
		case 's':
			s.seed = strtoull(optarg, NULL, 10);
			break;
		case 'f':
			s.few = true;
			break;
		case 'h':
			s.here = true;
			break;
		case 'o':
			s.only = optarg;
			break;
		default:
			fprintf(stderr, "usage: ops [--random N] [--seed S] [--few] [--here] "
					"[--only WORD] BACKEND …\n");
			return 2;
		}
	for (int i = optind; i < argc; i++)
		try_backend(argv[i], &s, &score);
	return score_close(&score);
}
