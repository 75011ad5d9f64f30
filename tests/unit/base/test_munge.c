/* Tests base/munge with a munged that the test starts. The test is skipped if munged is not
 * installed. */
#include "base/clock.h"
#include "base/munge.h"
#include "tests/unit/patience.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static struct {
	char folder[64], socket[80];
	pid_t munged;
	struct voucher by;
} t;

static const char about[] = "0123456789abcdef0123456789abcde?",
		  other[] = "fedcba9876543210fedcba987654321?";

static const char *munged_path(void)
{
	static const char *const paths[] = { "/usr/sbin/munged", "/usr/local/sbin/munged" };
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
		if (!access(paths[i], X_OK))
			return paths[i];
	return NULL;
}

static void become_munged(const char *path)
{
	char words[6][160], *argv[] = { "munged", "--foreground", "--force", words[0], words[1],
					words[2], words[3],       words[4],  NULL };
	static const char *const names[] = { "key-file", "socket", "pid-file", "log-file",
					     "seed-file" };
	for (int i = 0; i < 5; i++)
		snprintf(words[i], sizeof words[i], "--%s=%s/%s", names[i], t.folder, names[i]);
	if (freopen("/dev/null", "w", stderr)) /* munged prints each refusal */
		execv(path, argv);
	_exit(127);
}

static void write_key(void)
{
	char path[160], key[128];
	snprintf(path, sizeof path, "%s/key-file", t.folder);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(getrandom(key, sizeof key, 0), sizeof key);
	assert_int_equal(fwrite(key, sizeof key, 1, f), 1);
	fclose(f);
}

/* Every user can reach the socket. */
static int setup(void **state)
{
	(void)state;
	char word[MUNGE_WORD];
	if (!munged_path())
		return 0;
	/* The folder is not under TMPDIR, because another user must be able to reach it. */
	strcpy(t.folder, "/tmp/muster-test-XXXXXX");
	assert_non_null(mkdtemp(t.folder));
	assert_int_equal(chmod(t.folder, 0755), 0);
	write_key();
	snprintf(t.socket, sizeof t.socket, "%s/socket", t.folder);
	munge_word(t.socket, word);
	assert_int_equal(munge_parse(word, &t.by, NULL), 1);
	t.munged = fork();
	if (!t.munged)
		become_munged(munged_path());
	for (double until = clock_s() + PATIENT_WAIT_S; munge_try(&t.by, NULL); usleep(1000))
		assert_true(clock_s() < until);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	char command[128];
	if (!t.munged)
		return 0;
	kill(t.munged, SIGTERM);
	waitpid(t.munged, NULL, 0);
	snprintf(command, sizeof command, "rm -r %s", t.folder);
	return system(command);
}

static void need_munged(void)
{
	if (!t.munged)
		skip();
}

/* Returns a credential about `what`, which the command makes as user uid. */
static char *credential_of(uid_t uid, const char *what, const char *options)
{
	char command[512], text[AUTH_CREDENTIAL_MAX] = "";
	snprintf(command, sizeof command,
		 "exec setpriv --reuid=%u --clear-groups --regid=%u munge --socket=%s "
		 "--string='%s' %s",
		 (unsigned)uid, (unsigned)uid, t.socket, what, options);
	FILE *out = popen(command, "r");
	assert_non_null(out);
	assert_non_null(fgets(text, sizeof text, out));
	assert_int_equal(pclose(out), 0);
	text[strcspn(text, "\n")] = '\0';
	return strdup(text);
}

/* Returns the result of checking a credential about `about`. Takes ownership of the credential. */
static int checked(char *credential, struct err *e)
{
	struct vouch v = { .theirs = credential };
	memcpy(v.theirs_about, about, AUTH_ABOUT_BYTES);
	int rc = t.by.work(&t.by, &v, e);
	vouch_fini(&v);
	return rc;
}

static char *own(const char *what)
{
	struct vouch v = { .make = true };
	memcpy(v.ours_about, what, AUTH_ABOUT_BYTES);
	assert_int_equal(t.by.work(&t.by, &v, NULL), 0);
	return v.ours;
}

static void refuses(char *credential, const char *why)
{
	struct err e = ERR_INIT;
	assert_int_equal(checked(credential, &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
	if (!strstr(e.text, why))
		fail_msg("\"%s\" does not say \"%s\"", e.text, why);
}

static void a_credential_of_ones_own_user_is_good_once(void **state)
{
	(void)state;
	need_munged();
	char *c = own(about), *again = strdup(c);
	assert_int_equal(checked(c, NULL), 0);
	refuses(again, "used before");
}

static void one_about_something_else_is_refused(void **state)
{
	(void)state;
	need_munged();
	refuses(own(other), "another connection");
}

static void another_user_is_refused(void **state)
{
	(void)state;
	need_munged();
	if (geteuid())
		skip();
	refuses(credential_of(65534, about, ""), "user id 65534");
	refuses(credential_of(65534, about, "--restrict-uid=65534"), "another user");
	assert_int_equal(checked(credential_of(0, about, ""), NULL), 0);
}

static void nobody_else_can_have_ours_checked(void **state)
{
	(void)state;
	need_munged();
	if (geteuid())
		skip();
	char *c = own(about), command[AUTH_CREDENTIAL_MAX + 200];
	snprintf(command, sizeof command,
		 "echo '%s' | setpriv --reuid=65534 --clear-groups --regid=65534 unmunge "
		 "--socket=%s >/dev/null 2>&1",
		 c, t.socket);
	assert_int_equal(WEXITSTATUS(system(command)), 18);
	free(c);
}

static void garbage_is_refused(void **state)
{
	(void)state;
	need_munged();
	refuses(strdup("MUNGE:AwQFAACmCvKQ:"), "MUNGE");
	refuses(strdup("hello"), "MUNGE");
	refuses(strdup(""), "MUNGE");
	char *c = own(about);
	c[strlen(c) / 2] ^= 1;
	refuses(c, "MUNGE");
}

static void without_munged_the_error_has_the_remedy(void **state)
{
	(void)state;
	struct voucher nowhere;
	struct err e = ERR_INIT;
	need_munged();
	assert_int_equal(munge_parse("munge:/nowhere/socket", &nowhere, NULL), 1);
	assert_int_equal(munge_try(&nowhere, &e), -1);
	assert_non_null(strstr(e.text, "munged does not answer on this node; start it"));
	assert_non_null(strstr(e.text, "/nowhere/socket"));
}

static void an_unknown_auth_word_is_refused(void **state)
{
	(void)state;
	struct voucher by;
	struct err e = ERR_INIT;
	char word[200];
	assert_int_equal(munge_parse(NULL, &by, NULL), 0);
	assert_int_equal(munge_parse("secret", &by, NULL), 0);
	assert_int_equal(munge_parse("munge", &by, NULL), 1);
	assert_string_equal(by.socket, "");
	static const char *const bad[] = { "", "Munge", "munged", "mung", "secret ", "none" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(munge_parse(bad[i], &by, &e), -1);
		assert_int_equal(e.code, ERR_USAGE);
	}
	memset(word, 'x', sizeof word);
	memcpy(word, "munge:", 6);
	word[6 + AUTH_SOCKET - 1] = '\0';
	assert_int_equal(munge_parse(word, &by, NULL), 1);
	assert_int_equal(strlen(by.socket), AUTH_SOCKET - 1);
	word[6 + AUTH_SOCKET - 1] = 'x';
	word[6 + AUTH_SOCKET] = '\0';
	assert_int_equal(munge_parse(word, &by, NULL), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_credential_of_ones_own_user_is_good_once),
		cmocka_unit_test(one_about_something_else_is_refused),
		cmocka_unit_test(another_user_is_refused),
		cmocka_unit_test(nobody_else_can_have_ours_checked),
		cmocka_unit_test(garbage_is_refused),
		cmocka_unit_test(without_munged_the_error_has_the_remedy),
		cmocka_unit_test(an_unknown_auth_word_is_refused),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
