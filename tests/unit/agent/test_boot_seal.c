/* Tests what ranks publish through PMIx, and what they accept of the values that they read there.
 * A store in memory replaces PMIx. */
#include "agent/boot.h"

#include <pmix.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 2, FENCES = 2 };

#define SECRET       "5f0a13c25f0a13c25f0a13c25f0a13c25f0a13c25f0a13c25f0a13c25f0a13c2"
#define OTHER_SECRET "6f0a13c25f0a13c25f0a13c25f0a13c25f0a13c25f0a13c25f0a13c25f0a13c2"

static struct {
	pmix_rank_t next; /* the rank that PMIx_Init gives its caller */
	pmix_rank_t who;  /* the rank that publishes now */
	char *published[RANKS][FENCES];
} store;

pmix_status_t PMIx_Init(pmix_proc_t *proc, pmix_info_t info[], size_t n)
{
	(void)info;
	(void)n;
	PMIX_LOAD_PROCID(proc, "space", store.next);
	return PMIX_SUCCESS;
}

pmix_status_t PMIx_Finalize(const pmix_info_t info[], size_t n)
{
	(void)info;
	(void)n;
	return PMIX_SUCCESS;
}

static char **slot(pmix_rank_t rank, const char *key)
{
	int fence = atoi(key + strlen("muster."));
	assert_true(rank < RANKS && fence < FENCES);
	return &store.published[rank][fence];
}

pmix_status_t PMIx_Put(pmix_scope_t scope, const char key[], pmix_value_t *value)
{
	(void)scope;
	char **at = slot(store.who, key);
	free(*at);
	*at = strdup(value->data.string);
	return PMIX_SUCCESS;
}

pmix_status_t PMIx_Commit(void)
{
	return PMIX_SUCCESS;
}

pmix_status_t PMIx_Fence(const pmix_proc_t procs[], size_t n, const pmix_info_t info[],
			 size_t infos)
{
	(void)procs;
	(void)n;
	(void)info;
	(void)infos;
	return PMIX_SUCCESS;
}

pmix_status_t PMIx_Get(const pmix_proc_t *proc, const char key[], const pmix_info_t info[],
		       size_t n, pmix_value_t **out)
{
	(void)info;
	(void)n;
	pmix_value_t *v;
	PMIX_VALUE_CREATE(v, 1);
	if (!strcmp(key, PMIX_JOB_SIZE)) {
		v->type = PMIX_UINT32;
		v->data.uint32 = RANKS;
	} else {
		v->type = PMIX_STRING;
		v->data.string = strdup(*slot(proc->rank, key));
	}
	*out = v;
	return PMIX_SUCCESS;
}

static struct boot *open_as(pmix_rank_t rank, const char *secret, uint32_t generation)
{
	struct boot *b;
	struct err e = ERR_INIT;
	store.next = rank;
	setenv("PMIX_RANK", "0", 1);
	setenv("PMIX_NAMESPACE", "space", 1);
	assert_int_equal(agent_boot_open(&b, &e), 0);
	assert_int_equal(agent_boot_seal(b, secret, generation, &e), 0);
	return b;
}

static void publish(struct boot *b, const char *address)
{
	const struct comm_bootstrap *boot = agent_boot_bootstrap(b);
	store.who = (pmix_rank_t)boot->rank;
	assert_int_equal(boot->put(boot->arg, "address", address, NULL), 0);
	assert_int_equal(boot->fence(boot->arg, NULL), 0);
}

static void forget(void)
{
	for (int r = 0; r < RANKS; r++)
		for (int f = 0; f < FENCES; f++) {
			free(store.published[r][f]);
			store.published[r][f] = NULL;
		}
}

static void replace(pmix_rank_t rank, int fence, const char *with)
{
	char *copy = strdup(with);
	free(store.published[rank][fence]);
	store.published[rank][fence] = copy;
}

static void ranks_of_one_generation_read_each_other(void **state)
{
	(void)state;
	struct boot *b[RANKS] = { open_as(0, SECRET, 7), open_as(1, SECRET, 7) };
	char *value;
	publish(b[0], "10.0.0.7:1");
	publish(b[1], "10.0.0.8:2");
	for (int r = 0; r < RANKS; r++) {
		const struct comm_bootstrap *boot = agent_boot_bootstrap(b[r]);
		assert_null(strstr(store.published[r][0], "10.0.0"));
		assert_int_equal(boot->get(boot->arg, 1 - r, "address", &value, NULL), 0);
		assert_string_equal(value, r ? "10.0.0.7:1" : "10.0.0.8:2");
		free(value);
	}
	agent_boot_finish(b[0]);
	agent_boot_finish(b[1]);
	forget();
}

/* Rank 0 reads the value in rank 1's place, and must refuse it. */
static void refused(struct boot *b)
{
	const struct comm_bootstrap *boot = agent_boot_bootstrap(b);
	struct err e = ERR_INIT;
	char *value = NULL;
	assert_int_equal(boot->get(boot->arg, 1, "address", &value, &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
	assert_non_null(strstr(e.text, "rank 1"));
	assert_null(value);
}

static void what_a_stranger_publishes_is_refused(void **state)
{
	(void)state;
	static const char *const forged[] = { "{\"address\":\"10.6.6.6:6\"}", "", "AAAA",
					      "not base64 at all!" };
	struct boot *b = open_as(0, SECRET, 7);
	publish(b, "10.0.0.7:1");
	for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
		replace(1, 0, forged[i]);
		refused(b);
	}
	replace(1, 0, store.published[0][0]); /* its own value, sent back */
	refused(b);
	agent_boot_finish(b);
	forget();
}

static void the_secret_the_generation_and_the_rank_must_fit(void **state)
{
	(void)state;
	struct boot *b = open_as(0, SECRET, 7), *past = open_as(1, SECRET, 6),
		    *other = open_as(1, OTHER_SECRET, 7);
	publish(b, "10.0.0.7:1");
	publish(past, "10.0.0.8:2");
	refused(b);
	publish(other, "10.0.0.8:2");
	refused(b);
	agent_boot_finish(b);
	agent_boot_finish(past);
	agent_boot_finish(other);
	forget();
}

static void what_an_earlier_fence_carried_does_not_serve_a_later_one(void **state)
{
	(void)state;
	struct boot *a = open_as(0, SECRET, 7), *b = open_as(1, SECRET, 7);
	publish(a, "10.0.0.7:1");
	publish(b, "10.0.0.8:2");
	publish(a, "10.0.0.7:3");
	publish(b, "10.0.0.8:4");
	replace(1, 1, store.published[1][0]);
	refused(a);
	agent_boot_finish(a);
	agent_boot_finish(b);
	forget();
}

static void nothing_is_published_before_the_secret_is_known(void **state)
{
	(void)state;
	struct boot *b;
	struct err e = ERR_INIT;
	store.next = 0;
	setenv("PMIX_RANK", "0", 1);
	setenv("PMIX_NAMESPACE", "space", 1);
	assert_int_equal(agent_boot_open(&b, &e), 0);
	const struct comm_bootstrap *boot = agent_boot_bootstrap(b);
	assert_int_equal(boot->put(boot->arg, "address", "10.0.0.7:1", &e), 0);
	assert_int_equal(boot->fence(boot->arg, &e), -1);
	assert_null(store.published[0][0]);
	assert_int_equal(agent_boot_seal(b, "no secret", 7, &e), -1);
	agent_boot_finish(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_of_one_generation_read_each_other),
		cmocka_unit_test(what_a_stranger_publishes_is_refused),
		cmocka_unit_test(the_secret_the_generation_and_the_rank_must_fit),
		cmocka_unit_test(what_an_earlier_fence_carried_does_not_serve_a_later_one),
		cmocka_unit_test(nothing_is_published_before_the_secret_is_known),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
