#include "base/munge.h"

#include "base/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The part of libmunge.so.2 that is used here. */
enum { OPT_SOCKET = 8, OPT_UID_RESTRICTION = 9 };
enum {
	SUCCESS = 0,
	NO_SOCKET = 6,
	NO_ANSWER = 7,
	BAD_KEY = 14,
	EXPIRED = 15,
	REWOUND = 16,
	REPLAYED = 17,
	NOT_FOR_US = 18
};

static struct munge_library {
	void *(*create)(void);
	void (*destroy)(void *ctx);
	int (*set)(void *ctx, int option, ...);
	const char *(*ctx_error)(void *ctx);
	const char *(*error)(int code);
	int (*encode)(char **credential, void *ctx, const void *data, int len);
	int (*decode)(const char *credential, void *ctx, void **data, int *len, uid_t *uid,
		      gid_t *gid);
} lib;

static const struct library_symbol symbols[] = {
	LIBRARY_NEEDS(munge_library, create, "munge_ctx_create"),
	LIBRARY_NEEDS(munge_library, destroy, "munge_ctx_destroy"),
	LIBRARY_NEEDS(munge_library, set, "munge_ctx_set"),
	LIBRARY_NEEDS(munge_library, ctx_error, "munge_ctx_strerror"),
	LIBRARY_NEEDS(munge_library, error, "munge_strerror"),
	LIBRARY_NEEDS(munge_library, encode, "munge_encode"),
	LIBRARY_NEEDS(munge_library, decode, "munge_decode"),
};

static struct library munge = {
	.name = "MUNGE: libmunge.so.2",
	.files = { "libmunge.so.2" },
	.code = ERR_UNSUPPORTED,
	.remedy = "install the package libmunge2",
	.symbols = symbols,
	.count = sizeof symbols / sizeof *symbols,
	.table = &lib,
	.lock = PTHREAD_MUTEX_INITIALIZER,
};

static int open_context(const struct voucher *by, void **ctx, struct err *e)
{
	if (library_load(&munge, e))
		return -1;
	*ctx = lib.create();
	if (!*ctx)
		return err_set(e, ERR_NOMEM, "MUNGE: no memory for a context");
	if (*by->socket && lib.set(*ctx, OPT_SOCKET, by->socket)) {
		lib.destroy(*ctx);
		return err_set(e, ERR_NOMEM, "MUNGE: cannot use %s as munged's socket", by->socket);
	}
	return 0;
}

/* The remedy for each error. */
/* clang-format off */
static const struct {
	int code;
	const char *what;
} remedies[] = {
	{ NO_SOCKET, "munged does not answer on this node; start it, let this process reach its socket, or launch with MUSTER_AUTH=secret" },
	{ NO_ANSWER, "munged does not answer on this node; restart it" },
	{ BAD_KEY, "the peer's credential is invalid; do all nodes have the same munge.key?" },
	{ EXPIRED, "the peer's credential is too old; do the nodes' clocks agree?" },
	{ REWOUND, "the peer's credential is from the future; do the nodes' clocks agree?" },
	{ REPLAYED, "the peer's credential was used before; somebody may have listened to the network" },
	{ NOT_FOR_US, "the peer's credential is for another user; it must run as the same user id" },
};
/* clang-format on */

static int refuse(void *ctx, int code, struct err *e)
{
	const char *detail = lib.ctx_error(ctx), *what = "a credential failed";
	for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++)
		if (remedies[i].code == code)
			what = remedies[i].what;
	return err_set(e, ERR_AUTH, "MUNGE: %s (%s)", what, detail ? detail : lib.error(code));
}

static int make(const struct voucher *by, const unsigned char about[AUTH_ABOUT_BYTES],
		char **credential, struct err *e)
{
	void *ctx;
	if (open_context(by, &ctx, e))
		return -1;
	int code = lib.set(ctx, OPT_UID_RESTRICTION, geteuid());
	if (!code)
		code = lib.encode(credential, ctx, about, AUTH_ABOUT_BYTES);
	int rc = code ? refuse(ctx, code, e) : 0;
	lib.destroy(ctx);
	return rc;
}

static int check_credential(const struct voucher *by, const char *credential,
			    const unsigned char about[AUTH_ABOUT_BYTES], struct err *e)
{
	void *ctx, *said = NULL;
	int len = 0, rc = 0;
	uid_t uid = 0;
	gid_t gid = 0;
	if (open_context(by, &ctx, e))
		return -1;
	int code = lib.decode(credential, ctx, &said, &len, &uid, &gid);
	if (code != SUCCESS)
		rc = refuse(ctx, code, e);
	else if (uid != geteuid())
		rc = err_set(e, ERR_AUTH,
			     "MUNGE: the peer runs as user id %u, this process as %u; they must be "
			     "the same user's",
			     (unsigned)uid, (unsigned)geteuid());
	else if (len != AUTH_ABOUT_BYTES || memcmp(said, about, AUTH_ABOUT_BYTES))
		rc = err_set(e, ERR_AUTH,
			     "MUNGE: the peer's credential is about another connection; somebody "
			     "may be in the middle");
	free(said);
	lib.destroy(ctx);
	return rc;
}

/* Makes our credential only if the peer's is valid. */
static int vouch_both(const struct voucher *by, struct vouch *v, struct err *e)
{
	if (v->theirs && check_credential(by, v->theirs, v->theirs_about, e))
		return -1;
	return v->make ? make(by, v->ours_about, &v->ours, e) : 0;
}

int munge_parse(const char *word, struct voucher *by, struct err *e)
{
	static const char name[] = "munge";
	const size_t len = sizeof name - 1;
	if (!word || !strcmp(word, "secret"))
		return 0;
	if (strncmp(word, name, len) || (word[len] && word[len] != ':') ||
	    strlen(word) > len + AUTH_SOCKET)
		return err_set(e, ERR_USAGE,
			       "MUSTER_AUTH is \"%.64s\"; secret, munge and munge:SOCKET are known",
			       word);
	by->work = vouch_both;
	snprintf(by->socket, sizeof by->socket, "%s", word[len] ? word + len + 1 : "");
	return 1;
}

void munge_word(const char *socket, char word[MUNGE_WORD])
{
	snprintf(word, MUNGE_WORD, "munge%s%.*s", *socket ? ":" : "", AUTH_SOCKET - 1, socket);
}

int munge_try(const struct voucher *by, struct err *e)
{
	static const unsigned char nothing[AUTH_ABOUT_BYTES];
	char *credential = NULL;
	int rc = make(by, nothing, &credential, e);
	free(credential);
	return rc;
}
