/* without_cuda — replaces a test of the CUDA half where the headers that it needs were missing at build
 * time: it is skipped by name. */
#ifndef MUSTER_TESTS_GPU_WITHOUT_CUDA_H
#define MUSTER_TESTS_GPU_WITHOUT_CUDA_H

/* The whole program. lacking: a literal such as "nccl.h"; group: cmocka's name of its tests. */
#define SKIPPED_WITHOUT(lacking, group) \
	static void needs_cuda_to_build(void **state) \
	{ \
		(void)state; \
		print_message(lacking " not there at the build\n"); \
		skip(); \
	} \
	int main(void) \
	{ \
		const struct CMUnitTest tests[] = { cmocka_unit_test(needs_cuda_to_build) }; \
		return cmocka_run_group_tests_name(group, tests, NULL, NULL); \
	}

#define SKIPPED_WITHOUT_CUDA(group) SKIPPED_WITHOUT("the headers of CUDA 12 or newer were", group)

#endif
