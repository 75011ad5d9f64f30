/* Any bytes as what an object store and its surroundings say. The first byte chooses the reader:
 *
 *     l  a page of a list        u  a page of unfinished uploads     p  a checkpoint's pointer
 *     f  a credentials file      r  the keys of a role               d  an address
 *     a  Retry-After
 */
#include "agent/engine/ckpt/storage/pointer.h"
#include "base/s3/credentials.h"
#include "base/s3/list.h"
#include "base/s3/retry.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool right)
{
	if (!right)
		abort();
}

static int check_listed(void *arg, const struct s3_listed *o, struct err *e)
{
	(void)arg, (void)e;
	expect(o->key && o->size >= 0 && strlen(o->etag) < S3_ETAG);
	return 0;
}

static int check_unfinished(void *arg, const struct s3_unfinished *u, struct err *e)
{
	(void)arg, (void)e;
	expect(u->key[0] && u->id[0]);
	return 0;
}

static void check_keys(int rc, const struct s3_keys *k, const struct err *e)
{
	if (rc < 0)
		expect(e->text[0]);
	else
		expect(k->id[0] && k->secret[0] && strlen(k->token) < sizeof k->token);
}

static void read_text(char what, const char *text, size_t n)
{
	struct err e = ERR_INIT;
	struct s3_page page;
	struct s3_keys keys = { 0 };
	struct s3_place at;
	struct ckpt_pointer p;
	int rc;
	switch (what) {
	case 'l':
		rc = s3_list_page(text, n, check_listed, NULL, &page, &e);
		expect(!rc ? !page.more || page.next[0] : e.text[0] != '\0');
		break;
	case 'u':
		rc = s3_unfinished_page(text, n, check_unfinished, NULL, &page, &e);
		expect(!rc ? !page.more || page.next[0] : e.text[0] != '\0');
		break;
	case 'p':
		if (ckpt_pointer_parse(text, n, &p))
			expect(!strchr(p.attempt, '/') && !strncmp(p.attempt, ".attempt-", 9));
		break;
	case 'f':
		rc = s3_profile_parse(text, "default", "file", &keys, &e);
		if (rc)
			check_keys(rc, &keys, &e);
		break;
	case 'r':
		check_keys(s3_role_parse(text, n, "service", &keys, &e), &keys, &e);
		break;
	case 'd':
		if (!s3_place_parse(text, &at, &e))
			expect(strlen(at.bucket) >= 3 && at.key[0] != '/' && !strstr(at.key, "//"));
		break;
	case 'a':
		expect(s3_retry_after(text, 1e9) >= 0);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	char *text = malloc(size);
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	read_text((char)data[0], text, size - 1);
	free(text);
	return 0;
}
