/*
 * Sends a number around the ring of ranks, sums it, and continues from its checkpoints. Arguments: STEPS FOLDER, which all ranks
 * share. With -I and the folder of muster_client.h it reports to muster.
 *     mpicc -O2 -o build/mpi_ring templates/programs/mpi_ring.c
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#if __has_include("muster_client.h")
#include "muster_client.h"
#define report(step, value) muster_step(step, &(struct muster_number){ "loss", value }, 1)
#else
#define report(step, value)                 ((void)0)
#define muster_checkpoint_saved(path, step) ((void)0)
#define muster_should_stop()                0
#endif
// Whenever the program is killed, either the old checkpoint or the new one is there.
static void save(const char *file, long step, double value)
{
	char new[4096];
	snprintf(new, sizeof(new), "%s.new", file);
	FILE *f = fopen(new, "w");
	if (!f || fprintf(f, "%ld %a\n", step, value) < 0 || fclose(f) || rename(new, file))
		MPI_Abort(MPI_COMM_WORLD, 1);
	muster_checkpoint_saved(file, step);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	int rank, size, stop = 0;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	char file[4000];
	snprintf(file, sizeof(file), "%s/ring.txt", argc > 2 ? argv[2] : ".");
	long step = 0, steps = argc > 1 ? atol(argv[1]) : 10000;
	double value = 0.3, passed, sum;
	FILE *f = fopen(file, "r");
	if (f && (fscanf(f, "%ld %la", &step, &value) != 2 || fclose(f)))
		MPI_Abort(MPI_COMM_WORLD, 1);
	while (step < steps && !stop) {
		double mine = value * (rank + 1);
		int asked = muster_should_stop();
		MPI_Sendrecv(&mine, 1, MPI_DOUBLE, (rank + 1) % size, 0, &passed, 1, MPI_DOUBLE,
			     (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Allreduce(&passed, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		MPI_Allreduce(&asked, &stop, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
		value = sum / (size * (size + 1) / 2);
		value = 3.9 * value * (1 - value); // chaotic: a wrong digit changes all later steps
		step++;
		report(step, value);
		if (rank == 0 && (step % 1000 == 0 || step == steps || stop)) {
			printf("step %ld loss %.17g\n", step, value);
			fflush(stdout);
			save(file, step, value);
		}
	}
	return MPI_Finalize();
}
