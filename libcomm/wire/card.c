#include "libcomm/wire/card.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char key[] = "muster.comm.1";

enum { HEX_NONCE = 2 * SEG_NONCE + 1, HEX_SECRET = 2 * SECRET_BYTES + 1 };

/* Fields: pid directory wakeup nonce secret address sockets algorithm force_tcp integrity host. The
 * host comes last, because it may contain any characters. */
int comm_card_put(const struct comm_bootstrap *boot, const struct wire_card *card, struct err *e)
{
	char nonce[HEX_NONCE], secret[HEX_SECRET],
		text[HEX_NONCE + HEX_SECRET + NET_ADDR_MAX + 400];
	sodium_bin2hex(nonce, sizeof nonce, card->nonce, SEG_NONCE);
	sodium_bin2hex(secret, sizeof secret, card->secret, SECRET_BYTES);
	snprintf(text, sizeof text, "%d %d %d %s %s %s %d %d %d %d %s", (int)card->pid,
		 card->directory, card->wakeup, nonce, secret, card->address, card->sockets,
		 card->algorithm, card->force_tcp, card->integrity, card->host);
	int rc = boot->put(boot->arg, key, text, e);
	sodium_memzero(secret, sizeof secret);
	sodium_memzero(text, sizeof text);
	return rc;
}

static int parse_card(const char *text, struct wire_card *c)
{
	char nonce[HEX_NONCE], secret[HEX_SECRET];
	int pid, host = 0;
	size_t a, b;
	_Static_assert(HEX_NONCE == 65 && HEX_SECRET == 65 && NET_ADDR_MAX == 80, "widths below");
	if (sscanf(text, "%d %d %d %64s %64s %79s %d %d %d %d %n", &pid, &c->directory, &c->wakeup,
		   nonce, secret, c->address, &c->sockets, &c->algorithm, &c->force_tcp,
		   &c->integrity, &host) != 10 ||
	    !host || pid <= 0 ||
	    sodium_hex2bin(c->nonce, SEG_NONCE, nonce, strlen(nonce), NULL, &a, NULL) < 0 ||
	    a != SEG_NONCE ||
	    sodium_hex2bin(c->secret, SECRET_BYTES, secret, strlen(secret), NULL, &b, NULL) < 0 ||
	    b != SECRET_BYTES)
		return -1;
	sodium_memzero(secret, sizeof secret);
	c->pid = pid;
	return snprintf(c->host, sizeof c->host, "%s", text + host) < (int)sizeof c->host ? 0 : -1;
}

/* Otherwise, ranks would wait for each other forever, or use one rank's data as another's. */
static int check_same(const struct world *w, int rank, const struct wire_card *c, struct err *e)
{
	const char *other = c->sockets != w->sockets            ? "sockets"
			    : c->force_tcp != w->force_tcp      ? "backend"
			    : c->integrity != (int)w->integrity ? "integrity"
			    : c->algorithm != w->algorithm      ? "algorithm"
								: NULL;
	return other ? err_set(e, ERR_USAGE,
			       "rank %d on host %s has another [network] %s than this one; it must "
			       "be the same on all ranks",
			       rank, c->host, other)
		     : 0;
}

int comm_card_get(const struct comm_bootstrap *boot, const struct world *w, int rank,
		  struct wire_card *card, struct err *e)
{
	char *text = NULL;
	if (boot->get(boot->arg, rank, key, &text, e) < 0)
		return err_prefix(e, "rank %d", rank);
	int rc = parse_card(text, card);
	sodium_memzero(text, strlen(text));
	free(text);
	if (rc)
		return err_set(e, ERR_PROTO,
			       "rank %d published an invalid address; all ranks must run the same "
			       "version of muster",
			       rank);
	return check_same(w, rank, card, e);
}
