/*
 * The loop of `muster bench comm` over MPI, for comparison. It has the same operations, sizes and
 * timing. It prints a line `OP BYTES SECONDS` for each, with the time of the best block. The first
 * line is `memcpy 0 BYTES_PER_SECOND`, measured while all ranks copy memory of their own at once.
 *
 * usage: mpirun -n N mpi_loop SECONDS LEAST MOST FACTOR
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 5, COPY = 64 << 20, COPIES = 4 };

static int ranks, rank;
static float *in, *out;

static void all_reduce(int n)
{
	MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void all_gather(int n)
{
	MPI_Allgather(in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD);
}

static void reduce_scatter(int n)
{
	MPI_Reduce_scatter_block(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void all_to_all(int n)
{
	MPI_Alltoall(in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD);
}

static void ping_pong(int n)
{
	if (rank == 0) {
		MPI_Send(in, n, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(out, n, MPI_FLOAT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else if (rank == 1) {
		MPI_Recv(out, n, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(in, n, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
	}
}

static const struct {
	const char *name;
	void (*run)(int n);
	int shared; /* the size counts all ranks' blocks */
	int messages;
} ops[] = {
	{ "all_reduce", all_reduce, 0, 1 },         { "all_gather", all_gather, 1, 1 },
	{ "reduce_scatter", reduce_scatter, 1, 1 }, { "all_to_all", all_to_all, 1, 1 },
	{ "ping_pong", ping_pong, 0, 2 },
};

static double slowest(double x)
{
	double most;
	MPI_Allreduce(&x, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return most;
}

/* Seconds per call, over `iters` calls, on this rank. */
static double block(int op, int n, int iters)
{
	MPI_Barrier(MPI_COMM_WORLD);
	double begun = MPI_Wtime();
	for (int i = 0; i < iters; i++)
		ops[op].run(n);
	return (MPI_Wtime() - begun) / iters;
}

static int fitting(double seconds, double one)
{
	double n = seconds / (one > 1e-9 ? one : 1e-9);
	return n < 1 ? 1 : n > 1e6 ? 1000000 : (int)n;
}

static double best(int op, int n, double seconds)
{
	double each = seconds / BLOCKS, least = 1e9;
	int iters = fitting(each / 10, slowest(block(op, n, 1)));
	iters = fitting(each, slowest(block(op, n, iters)));
	for (int i = 0; i < BLOCKS; i++) {
		double t = slowest(block(op, n, iters)) / ops[op].messages;
		least = t < least ? t : least;
	}
	return least;
}

/* Bytes per second that all ranks together copy. */
static double copying(void)
{
	char *from = malloc(COPY), *to = malloc(COPY);
	double least = 1e9;
	if (!from || !to)
		MPI_Abort(MPI_COMM_WORLD, 1);
	memset(from, 1, COPY);
	memset(to, 2, COPY);
	for (int i = 0; i < COPIES; i++) {
		MPI_Barrier(MPI_COMM_WORLD);
		double begun = MPI_Wtime();
		memcpy(to, from, COPY);
		double t = slowest(MPI_Wtime() - begun);
		least = t < least ? t : least;
	}
	free(from);
	free(to);
	return (double)COPY * ranks / least;
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	double seconds = argc == 5 ? atof(argv[1]) : 0;
	size_t least = argc == 5 ? strtoul(argv[2], NULL, 10) : 0,
	       most = argc == 5 ? strtoul(argv[3], NULL, 10) : 0;
	size_t factor = argc == 5 ? strtoul(argv[4], NULL, 10) : 0;
	in = malloc(most + sizeof *in);
	out = malloc(most + sizeof *out);
	if (!(seconds > 0) || least < sizeof *in || factor < 2 || !in || !out) {
		fprintf(stderr, "usage: mpirun -n N mpi_loop SECONDS LEAST MOST FACTOR\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	for (size_t i = 0; i < most / sizeof *in; i++)
		in[i] = out[i] = 1;
	double copy = copying();
	if (rank == 0)
		printf("memcpy 0 %g\n", copy);
	for (int op = 0; op < (int)(sizeof ops / sizeof *ops); op++)
		for (size_t bytes = least; bytes <= most; bytes *= factor) {
			size_t parts = ops[op].shared ? (size_t)ranks : 1,
			       n = bytes / sizeof *in / parts;
			double t = n ? best(op, (int)n, seconds) : 0;
			if (rank == 0 && n)
				printf("%s %zu %.9g\n", ops[op].name, n * sizeof *in * parts, t);
		}
	free(in);
	free(out);
	MPI_Finalize();
}
