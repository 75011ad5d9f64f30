#include "agent/boot.h"

#include "base/auth.h"
#include "base/seal.h"

#include <inttypes.h>
#include <jansson.h>
#include <netdb.h>
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

extern char **environ;

/* The values that one rank has published up to the last fence. */
struct peer {
	json_t *values;
	int rounds;
};

struct boot {
	struct comm_bootstrap bootstrap;
	pmix_proc_t me;
	json_t *pending; /* put since the last fence */
	int rounds;      /* fences so far */
	struct peer *peers;
	unsigned char key[SEAL_KEY_BYTES]; /* seals published values */
	uint32_t generation;
	bool sealed; /* the key is set */
};

_Static_assert((int)SEAL_KEY_BYTES == (int)AUTH_SECRET_BYTES, "the group's secret is a key");

char *agent_boot_take_env(const char *name)
{
	char *value = getenv(name);
	char *copy = value ? strdup(value) : NULL;
	if (value)
		explicit_bzero(value, strlen(value));
	unsetenv(name);
	return copy;
}

void agent_boot_host(char out[BOOT_HOST])
{
	const char *node = getenv("SLURMD_NODENAME");
	out[BOOT_HOST - 1] = '\0';
	if (node && *node)
		snprintf(out, BOOT_HOST, "%s", node);
	else if (gethostname(out, BOOT_HOST - 1))
		snprintf(out, BOOT_HOST, "local");
}

/* The address that the kernel would send from. Nothing is sent. */
static bool address_towards(const struct addrinfo *to, char out[NET_ADDR_MAX])
{
	struct sockaddr_storage me;
	socklen_t len = sizeof me;
	char host[NET_ADDR_MAX - 2];
	int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool found = fd >= 0 && !connect(fd, to->ai_addr, to->ai_addrlen) &&
		     !getsockname(fd, (struct sockaddr *)&me, &len) &&
		     !getnameinfo((struct sockaddr *)&me, len, host, sizeof host, NULL, 0,
				  NI_NUMERICHOST);
	if (fd >= 0)
		close(fd);
	if (found)
		snprintf(out, NET_ADDR_MAX, me.ss_family == AF_INET6 ? "[%s]" : "%s", host);
	return found;
}

bool agent_boot_address(char out[NET_ADDR_MAX])
{
	const char *launcher = getenv("SLURM_LAUNCH_NODE_IPADDR");
	struct addrinfo hints = { .ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICHOST }, *to;
	if (!launcher || getaddrinfo(launcher, "9", &hints, &to))
		return false;
	bool found = address_towards(to, out);
	freeaddrinfo(to);
	return found;
}

static int pmix_fails(pmix_status_t rc, const char *what, struct err *e)
{
	return err_set(e, rc == PMIX_ERR_TIMEOUT ? ERR_TIMEOUT : ERR_NET, "PMIx: %s: %s (%d)", what,
		       PMIx_Error_string(rc), rc);
}

static int boot_put(void *arg, const char *key, const char *value, struct err *e)
{
	struct boot *b = arg;
	if (json_object_set_new(b->pending, key, json_string(value)))
		return err_set(e, ERR_INTERNAL,
			       "PMIx: cannot publish %s: it is not UTF-8, or there is no memory",
			       key);
	return 0;
}

static void round_key(char key[PMIX_MAX_KEYLEN], int round)
{
	snprintf(key, PMIX_MAX_KEYLEN, "muster.%d", round);
}

/* A published text is bound to this description, so a text of another rank, an earlier fence or
 * another launch does not open. */
static void about_round(const struct boot *b, int rank, int round, char out[96])
{
	snprintf(out, 96, "muster endpoints, generation %" PRIu32 ", rank %d of %d, fence %d",
		 b->generation, rank, b->bootstrap.size, round);
}

/* Seals the values that were put since the last fence. The caller frees the result. */
static char *seal_pending(const struct boot *b, struct err *e)
{
	char about[96], *sealed = NULL, *plain = json_dumps(b->pending, JSON_COMPACT);
	if (!plain) {
		err_set(e, ERR_NOMEM, "PMIx: no memory for the endpoints");
		return NULL;
	}
	about_round(b, b->bootstrap.rank, b->rounds, about);
	seal_text(b->key, about, plain, &sealed, e);
	explicit_bzero(plain, strlen(plain));
	free(plain);
	return sealed;
}

static int boot_fence(void *arg, struct err *e)
{
	struct boot *b = arg;
	char key[PMIX_MAX_KEYLEN];
	if (!b->sealed)
		return err_set(
			e, ERR_INTERNAL,
			"PMIx: an endpoint cannot be published before the group's secret is known");
	round_key(key, b->rounds);
	pmix_value_t value = { .type = PMIX_STRING };
	value.data.string = seal_pending(b, e);
	if (!value.data.string)
		return -1;
	pmix_status_t rc = PMIx_Put(PMIX_GLOBAL, key, &value);
	free(value.data.string);
	if (rc == PMIX_SUCCESS)
		rc = PMIx_Commit();
	if (rc != PMIX_SUCCESS)
		return pmix_fails(rc, "the endpoints could not be published", e);
	bool yes = true;
	pmix_info_t collect;
	PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
	rc = PMIx_Fence(NULL, 0, &collect, 1);
	PMIX_INFO_DESTRUCT(&collect);
	/* PARTIAL_SUCCESS: a rank died before it reached the fence. */
	if (rc != PMIX_SUCCESS)
		return pmix_fails(
			rc,
			"the fence that exchanges endpoints failed; check whether a rank has died",
			e);
	json_object_clear(b->pending);
	b->rounds++;
	return 0;
}

/* Opens what `rank` published at fence `round`; NULL: it is not that rank's. */
static json_t *open_round(const struct boot *b, int rank, int round, const char *sealed,
			  struct err *e)
{
	char about[96], *plain;
	about_round(b, rank, round, about);
	if (seal_open_text(b->key, about, sealed, &plain, e)) {
		err_prefix(e,
			   "PMIx: rank %d did not publish the endpoints that have its name; check "
			   "whether another program uses this PMIx server",
			   rank);
		return NULL;
	}
	json_t *got = json_loads(plain, JSON_REJECT_DUPLICATES, NULL);
	explicit_bzero(plain, strlen(plain));
	free(plain);
	if (!json_is_object(got)) {
		json_decref(got);
		err_set(e, ERR_PROTO,
			"PMIx: rank %d published a value that is not a list of endpoints", rank);
		return NULL;
	}
	return got;
}

/* Fetches what `rank` published at fence `round`. */
static int fetch_round(struct boot *b, int rank, int round, struct err *e)
{
	char key[PMIX_MAX_KEYLEN];
	round_key(key, round);
	pmix_proc_t from;
	PMIX_LOAD_PROCID(&from, b->me.nspace, (pmix_rank_t)rank);
	pmix_value_t *value = NULL;
	pmix_status_t rc = PMIx_Get(&from, key, NULL, 0, &value);
	if (rc != PMIX_SUCCESS)
		return pmix_fails(rc, "another rank's endpoints could not be read", e);
	bool text = value->type == PMIX_STRING && value->data.string;
	json_t *got = open_round(b, rank, round, text ? value->data.string : "", e);
	PMIX_VALUE_RELEASE(value);
	if (!got)
		return -1;
	struct peer *p = &b->peers[rank];
	if (!p->values)
		p->values = json_object();
	int failed = json_object_update(p->values, got);
	json_decref(got);
	if (failed)
		return err_set(e, ERR_NOMEM, "PMIx: no memory for rank %d's endpoints", rank);
	p->rounds = round + 1;
	return 0;
}

static int boot_get(void *arg, int rank, const char *key, char **value, struct err *e)
{
	struct boot *b = arg;
	struct peer *p = &b->peers[rank];
	while (p->rounds < b->rounds)
		if (fetch_round(b, rank, p->rounds, e))
			return -1;
	const char *text = json_string_value(json_object_get(p->values, key));
	if (!text)
		return err_set(e, ERR_NOTFOUND, "PMIx: rank %d did not publish %s", rank, key);
	char *copy = strdup(text);
	if (!copy)
		return err_set(e, ERR_NOMEM, "PMIx: no memory for %s of rank %d", key, rank);
	*value = copy;
	return 0;
}

static int world_size(const struct boot *b, int *size, struct err *e)
{
	pmix_proc_t job;
	PMIX_LOAD_PROCID(&job, b->me.nspace, PMIX_RANK_WILDCARD);
	pmix_value_t *value = NULL;
	pmix_status_t rc = PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &value);
	if (rc != PMIX_SUCCESS)
		return pmix_fails(rc, "the number of ranks could not be read", e);
	uint32_t n = value->type == PMIX_UINT32 ? value->data.uint32 : 0;
	PMIX_VALUE_RELEASE(value);
	if (n == 0 || n > INT32_MAX || b->me.rank >= n)
		return err_set(
			e, ERR_PROTO,
			"PMIx: the server gave rank %u of %u ranks; ranks are numbered from 0",
			b->me.rank, n);
	*size = (int)n;
	return 0;
}

static int learn_world(struct boot *b, struct err *e)
{
	int size;
	if (world_size(b, &size, e))
		return -1;
	b->peers = calloc((size_t)size, sizeof *b->peers);
	b->pending = json_object();
	if (!b->peers || !b->pending)
		return err_set(e, ERR_NOMEM, "PMIx: no memory for %d ranks", size);
	b->bootstrap = (struct comm_bootstrap){
		.rank = (int)b->me.rank,
		.size = size,
		.put = boot_put,
		.fence = boot_fence,
		.get = boot_get,
		.arg = b,
	};
	return 0;
}

int agent_boot_open(struct boot **out, struct err *e)
{
	/* Without a server PMIx_Init would make this process a world of one rank. */
	if (!getenv("PMIX_RANK") || !getenv("PMIX_NAMESPACE"))
		return err_set(e, ERR_NOTFOUND,
			       "PMIx: the environment names no PMIx server; "
			       "start agents with `muster run`, or with `srun --mpi=pmix`");
	struct boot *b = calloc(1, sizeof *b);
	if (!b)
		return err_set(e, ERR_NOMEM, "PMIx: no memory for the connection");
	pmix_status_t rc = PMIx_Init(&b->me, NULL, 0);
	if (rc != PMIX_SUCCESS) {
		free(b);
		return pmix_fails(rc, "PMIx_Init failed; check whether the launcher still runs", e);
	}
	if (learn_world(b, e)) {
		agent_boot_finish(b);
		return -1;
	}
	*out = b;
	return 0;
}

int agent_boot_seal(struct boot *b, const char *group_secret, uint32_t generation, struct err *e)
{
	if (auth_secret_parse(group_secret, b->key, e))
		return err_prefix(e, "the group's secret");
	b->generation = generation;
	b->sealed = true;
	return 0;
}

static void scrub_environment(void)
{
	static const char *const prefixes[] = { "PMIX_", "PMI_" };
	for (size_t i = 0; environ[i];) {
		char name[256];
		size_t n = strcspn(environ[i], "=");
		snprintf(name, sizeof name, "%.*s", (int)n, environ[i]);
		bool theirs = false;
		for (size_t k = 0; k < sizeof prefixes / sizeof *prefixes; k++)
			theirs |= !strncmp(name, prefixes[k], strlen(prefixes[k]));
		if (!theirs || unsetenv(name) || n >= sizeof name)
			i++;
	}
}

void agent_boot_finish(struct boot *b)
{
	if (!b)
		return;
	PMIx_Finalize(NULL, 0);
	scrub_environment();
	for (int i = 0; b->peers && i < b->bootstrap.size; i++)
		json_decref(b->peers[i].values);
	free(b->peers);
	json_decref(b->pending);
	explicit_bzero(b->key, sizeof b->key);
	free(b);
}

int agent_boot_rank(const struct boot *b)
{
	return b->bootstrap.rank;
}

int agent_boot_size(const struct boot *b)
{
	return b->bootstrap.size;
}

const struct comm_bootstrap *agent_boot_bootstrap(const struct boot *b)
{
	return &b->bootstrap;
}
