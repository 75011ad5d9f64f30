/*
 * Every op of the backend "cuda" against the specification without a GPU: make check-gpu's own program (tests/gpu/ops.c), over
 * the emulator, at a few sizes of each (build/tests/gpu/ops without --few takes many, and minutes). The host may not touch device memory
 * meanwhile. MUSTER_EMULATE_SEED gives other orders of threads.
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

/* The last lines that are no "ok" of what the program says, for the failure's message. */
static int run(const char *arguments, char *said, size_t size)
{
	char command[512], line[600];
	snprintf(command, sizeof command, "MUSTER_EMULATE_GUARD=1 '%s/ops' %s 2>&1", DOUBLES, arguments);
	FILE *out = popen(command, "r");
	assert_non_null(out);
	said[0] = '\0';
	while (fgets(line, sizeof line, out))
		if (strncmp(line, "ok ", 3) && strlen(said) + strlen(line) < size)
			strcat(said, line);
	return pclose(out);
}

/* cmocka hands over the arguments. */
static void every_op_agrees_with_the_specification(void **state)
{
	char said[8000];
	if (run(*state, said, sizeof said))
		fail_msg("ops %s:\n%s", (const char *)*state, said);
}

#define BACKEND(arguments) { "ops " arguments, every_op_agrees_with_the_specification, NULL, NULL, arguments }

int main(void)
{
	const struct CMUnitTest tests[] = { BACKEND("--few cuda"), BACKEND("--few --seed 8 cuda:bf16"), BACKEND("--few --seed 9 cuda:fp16") };
	return cmocka_run_group_tests_name("the ops of cuda, over an emulator", tests, NULL, NULL);
}

#else

static void needs_cuda_to_build(void **state)
{
	(void)state;
	print_message("the headers of CUDA 12 or newer were not there at the build\n");
	skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(needs_cuda_to_build) };
	return cmocka_run_group_tests_name("the ops of cuda, over an emulator", tests, NULL, NULL);
}

#endif
