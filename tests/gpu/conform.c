/*
 * Tests collectives on GPU memory against the reference of tests/conform: NCCL with one rank per
 * GPU, staged with four ranks on the first GPU. Prints one line per check, and then `N passed, N
 * failed, N skipped`. Without a GPU everything is skipped.
 *
 * usage: conform LIBMUSTER-CUDA.SO
 *
 * Guards, inputs and results are prepared in host memory, copied to the device, and compared byte
 * by byte in host memory again. Of NCCL's reductions over more than one rank, only those are
 * checked that do not depend on the order: of integers, maxima and minima.
 */
#include "libcomm/device/device.h"
#include "tests/conform/comm_forms.h"
#include "tests/unit/libcomm/ranks.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

static const size_t counts[] = { 0, 1, 3, 65, 1027, 4099, 300007 };
enum { COUNTS = sizeof counts / sizeof *counts, FORMS_MAX = 64 };

static const struct comm_device *(*parallel_device_table)(void);

struct run { /* shared with the ranks */
	const char *backend;
	bool one_gpu;
	_Atomic int failed[FORMS_MAX], cells[FORMS_MAX];
};

struct mirror {
	struct comm *c;
	const struct reference *ref;
	struct cell_memory memory;
	char *device[2];
	size_t room;
};

/* --- One cell --- */

static void *on_device(const struct mirror *m, const char *p)
{
	for (int b = 0; p && b < 2; b++)
		if (p >= m->memory.local[b] && p <= m->memory.local[b] + m->room)
			return m->device[b] + (p - m->memory.local[b]);
	return NULL;
}

/* Copies the cell's buffers with their guards. */
static int copy_boxes(const struct mirror *m, const struct cell *t, bool to_device)
{
	for (int b = 0; b < 2 && t->box[b].base; b++) {
		char *here = t->box[b].base - CELL_GUARD, *there = on_device(m, here);
		if (cudaMemcpy(to_device ? there : here, to_device ? here : there,
			       t->box[b].bytes + 2 * CELL_GUARD, cudaMemcpyDefault) != cudaSuccess)
			return 1;
	}
	return 0;
}

static int run_cell(const struct mirror *m, struct cell *t)
{
	struct err e = ERR_INIT;
	struct comm_request *req = NULL;
	char text[256];
	cell_prepare(t, &m->memory);
	struct cell there = *t;
	there.in = on_device(m, t->in);
	there.out = on_device(m, t->out);
	RANK_CHECK(copy_boxes(m, t, true) == 0, "cannot copy to the device");
	if (cell_call(&there, &req, &e) < 0 || comm_wait(req, &e) < 0 || comm_sync(m->c, &e) < 0) {
		fprintf(stderr, "%s: %s\n", cell_text(t, text), e.text);
		return 1;
	}
	RANK_CHECK(copy_boxes(m, t, false) == 0, "cannot copy from the device");
	return cell_check(t);
}

static bool any_order(const struct mirror *m, const struct cell *t)
{
	return !(t->form->traits & FORM_REDUCES) || !strcmp(comm_backend(m->c), "staged") ||
	       comm_size(m->c) == 1 || t->type >= COMM_I32 || t->op == COMM_MAX ||
	       t->op == COMM_MIN;
}

static int run_form(const struct mirror *m, const struct form *form, _Atomic int *cells)
{
	bool reduces = form->traits & FORM_REDUCES;
	for (int i = 0; i < REF_TYPES * REF_REDOPS * COUNTS * 4; i++) {
		struct cell t = { .c = m->c,
				  .ref = m->ref,
				  .form = form,
				  .choice = (uint32_t)i,
				  .in_place = i & 1,
				  .start = i & 2,
				  .shifted = i % 3 == 1,
				  .count = counts[i / 4 % COUNTS],
				  .op = (enum comm_op)(i / (4 * COUNTS) % REF_REDOPS),
				  .type = (enum comm_type)(i / (4 * COUNTS * REF_REDOPS)) };
		if ((!reduces && t.op) ||
		    (t.in_place && !(form->traits & (FORM_IN_PLACE | FORM_ALWAYS_IN_PLACE))) ||
		    (!t.in_place && (form->traits & FORM_ALWAYS_IN_PLACE)) || !any_order(m, &t))
			continue;
		if (t.count == counts[COUNTS - 1] && t.op != COMM_SUM)
			continue; /* one reduction is enough at the largest size */
		if (run_cell(m, &t))
			return 1;
		if (comm_rank(m->c) == 0)
			atomic_fetch_add(cells, 1);
	}
	return 0;
}

/* --- One world --- */

static int open_mirror(struct mirror *m, struct comm *c)
{
	*m = (struct mirror){ .c = c, .ref = reference_open(comm_size(c)) };
	RANK_CHECK(m->ref, "no reference");
	for (int f = 0; f < comm_form_count; f++) {
		size_t room = cell_room(&comm_forms[f], comm_size(c), counts[COUNTS - 1],
					sizeof(double));
		m->room = room > m->room ? room : m->room;
	}
	for (int b = 0; b < 2; b++) {
		m->memory.local[b] = calloc(1, m->room);
		RANK_CHECK(m->memory.local[b] &&
				   cudaMalloc((void **)&m->device[b], m->room) == cudaSuccess,
			   "no memory");
	}
	return 0;
}

static int conform(struct comm *world, void *arg)
{
	struct run *run = arg;
	struct err e = ERR_INIT;
	struct comm_device_options opt = { .device = parallel_device_table(),
					   .backend = run->backend,
					   .index = run->one_gpu ? 0 : comm_rank(world) };
	struct comm *c;
	struct mirror m;
	alarm(400);
	RANK_CHECK(cudaSetDevice(opt.index) == cudaSuccess, "device %d cannot be used", opt.index);
	RANK_CHECK(comm_on_device(world, &opt, "gpu", &c, &e) == 0, "%s", e.text);
	RANK_CHECK(!strcmp(comm_backend(c), run->backend), "the backend is %s", comm_backend(c));
	if (open_mirror(&m, c))
		return 1;
	for (int f = 0; f < comm_form_count; f++)
		if (run_form(&m, &comm_forms[f], &run->cells[f])) {
			atomic_fetch_add(&run->failed[f], 1);
			comm_abort(world, "a check has failed");
			return 1;
		}
	comm_close(c);
	return 0;
}

/* --- All of them -------------------------------------------------------------------------- */

struct score {
	int passed, failed, skipped;
};

static void run_world(const char *backend, int n, bool one_gpu, struct score *score)
{
	struct run *run = ranks_shared(sizeof *run);
	*run = (struct run){ .backend = backend, .one_gpu = one_gpu };
	struct ranks r = { .n = n, .timeout_s = 60, .fn = conform, .arg = run };
	int bad = ranks_run(&r);
	for (int f = 0; f < comm_form_count; f++) {
		bool ok = !run->failed[f] && run->cells[f];
		printf("%-6s %s, %d ranks, %s: %d cells\n", ok ? "ok" : "FAILED", backend, n,
		       comm_forms[f].name, run->cells[f]);
		score->passed += ok;
		score->failed += !ok;
	}
	if (bad && !score->failed)
		score->failed++;
	munmap(run, sizeof *run);
}

/* Runs in its own process, since CUDA does not survive a fork. */
static int count_gpus(void)
{
	int status = 0, count = 0;
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0)
		_exit(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

static void skip(const char *what, const char *why, struct score *score)
{
	printf("skip   %s: %s\n", what, why);
	score->skipped++;
}

int main(int argc, char **argv)
{
	struct score score = { 0 };
	void *lib = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!lib || !(*(void **)(void *)&parallel_device_table = dlsym(lib, "muster_comm_cuda"))) {
		fprintf(stderr, "usage: conform LIBMUSTER-CUDA.SO: %s\n",
			argc == 2 ? dlerror() : "one word is needed");
		return 2;
	}
	int gpus = count_gpus(), ranks = gpus < REF_RANKS ? gpus : REF_RANKS;
	void *nccl = dlopen("libnccl.so.2", RTLD_LAZY);
	if (!gpus) {
		skip("nccl, one rank a GPU", "there is no GPU", &score);
		skip("staged, 4 ranks on one GPU", "there is no GPU", &score);
	} else {
		run_world("staged", 4, true, &score);
		if (nccl && parallel_device_table()->collectives)
			run_world("nccl", ranks, false, &score);
		else
			skip("nccl, one rank a GPU",
			     "there is no libnccl.so.2, or no nccl.h at the build", &score);
	}
	printf("%d passed, %d failed, %d skipped\n", score.passed, score.failed, score.skipped);
	return score.failed ? 1 : 0;
}
