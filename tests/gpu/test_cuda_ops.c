/*
 * Tests every op of the backend "cuda" against the specification without a GPU. It runs the
 * programs of make check-gpu (tests/gpu/ops.c, edges.c) over the emulator, at a few sizes each.
 * (Without --few, build/tests/gpu/ops takes minutes.) The host may not touch device memory
 * meanwhile. MUSTER_EMULATE_SEED sets other orders of threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef HAVE_CUDA

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs a program. `said` gets the lines that are no "ok", for the failure's message. */
static int run_program(const char *program, char *said, size_t size)
{
	char command[512], line[600];
	snprintf(command, sizeof command, "cd '%s' && MUSTER_EMULATE_GUARD=1 %s 2>&1", DOUBLES,
		 program);
	FILE *out = popen(command, "r");
	assert_non_null(out);
	said[0] = '\0';
	while (fgets(line, sizeof line, out))
		if (strncmp(line, "ok ", 3) && strlen(said) + strlen(line) < size)
			strcat(said, line);
	return pclose(out);
}

/* state: the program with its arguments. */
static void agrees_with_the_specification(void **state)
{
	char said[8000];
	if (run_program(*state, said, sizeof said))
		fail_msg("%s:\n%s", (const char *)*state, said);
}

#define RUN(program) \
	{ \
		program, agrees_with_the_specification, NULL, NULL, program \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RUN("./ops --few cuda"),
		RUN("./ops --few --seed 8 cuda:bf16"),
		RUN("./ops --few --seed 9 cuda:fp16"),
		RUN("./edges cuda cuda:bf16 cuda:fp16"),
		/* Each block takes several turns. */
		RUN("MUSTER_EMULATE_MULTIPROCESSORS=1 ./ops --only norm_bwd cuda cuda:bf16"),
	};
	return cmocka_run_group_tests_name("the ops of cuda, over an emulator", tests, NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT_CUDA("the ops of cuda, over an emulator")

#endif
