/*
 * This is in front of the real muster_client.h on the include path of a test. It includes that one, and disturbs the program once,
 * as tests/programs/disturbed.py does: DISTURB="kill RANK STEP FILE".
 */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include_next "muster_client.h"

static inline void disturb_step(long step)
{
	int rank, who;
	long at;
	char file[1024];
	const char *text = getenv("DISTURB");
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (!text || sscanf(text, "kill %d %ld %1023[^\n]", &who, &at, file) != 3)
		return;
	if (who != rank || at != step || open(file, O_CREAT | O_EXCL | O_WRONLY, 0600) < 0)
		return;
	raise(SIGKILL);
}

static inline void disturbed_step(long long step, const struct muster_number *numbers, int count)
{
	disturb_step((long)step);
	muster_step(step, numbers, count);
}
#define muster_step disturbed_step
