/* The second source file of own_program.c: what it learns from muster is known there, too. */
#include "tests/doubles/own_program.h"

#include "agent/client/muster_client.h"

int own_program_should_stop(void)
{
	return muster_should_stop();
}
