/* Ordinary programs of one or two threads, one for each name of an argument. Each checks what POSIX
 * promises, and exits with 0 if that holds. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static const struct timespec past = {0, 0};
static long count;

static void check(int holds, int line)
{
    if (!holds) {
        fprintf(stderr, "line %d\n", line);
        _exit(1);
    }
}
#define CHECK(condition) check(condition, __LINE__)

static void add(void)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    count++;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void once(void)
{
    add();
    CHECK(count == 1);
}

static void five_times(void)
{
    for (int time = 0; time < 5; time++)
        add();
    CHECK(count == 5);
}

static void nested(void)
{
    CHECK(pthread_mutex_lock(&other) == 0);
    add();
    count++;
    CHECK(pthread_mutex_unlock(&other) == 0);
    CHECK(count == 2);
}

static void hand_over_hand(void)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    count++;
    CHECK(pthread_mutex_lock(&other) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    count++;
    CHECK(pthread_mutex_unlock(&other) == 0);
    CHECK(count == 2);
}

static void system_call(void)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    count++;
    CHECK(getppid() > 0);
    count++;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(count == 2);
}

/* A section that takes its mutex again if it can. It does not check inside: printing is a system
 * call, which would abort the transaction, and hide what went wrong in it. */
static void lock_again(int (*lock)(pthread_mutex_t *), int expected)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    count++;
    int result = lock(&mutex);
    if (result == 0)
        pthread_mutex_unlock(&mutex);
    pthread_mutex_unlock(&mutex);
    CHECK(result == expected);
    CHECK(pthread_mutex_trylock(&mutex) == 0 && count == 1);
}

static void trylock(void)
{
    lock_again(pthread_mutex_trylock, EBUSY);
}

static int lock_until_past(pthread_mutex_t *own)
{
    return pthread_mutex_timedlock(own, &past);
}

static void timed_lock(void)
{
    lock_again(lock_until_past, ETIMEDOUT);
}

static int lock_until_past_of_clock(pthread_mutex_t *own)
{
    return pthread_mutex_clocklock(own, CLOCK_MONOTONIC, &past);
}

static void clock_lock(void)
{
    lock_again(lock_until_past_of_clock, ETIMEDOUT);
}

static void timed_wait(void)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    count++;
    CHECK(pthread_cond_timedwait(&changed, &mutex, &past) == ETIMEDOUT);
    CHECK(pthread_cond_clockwait(&changed, &mutex, CLOCK_MONOTONIC, &past) == ETIMEDOUT);
    CHECK(pthread_mutex_trylock(&mutex) == EBUSY);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(count == 1);
}

static void other_kinds(void)
{
    pthread_mutexattr_t attributes;
    pthread_mutex_t recursive, checking;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&checking, &attributes);
    CHECK(pthread_mutex_lock(&recursive) == 0 && pthread_mutex_lock(&recursive) == 0);
    CHECK(pthread_mutex_unlock(&recursive) == 0 && pthread_mutex_unlock(&recursive) == 0);
    CHECK(pthread_mutex_unlock(&recursive) == EPERM);
    CHECK(pthread_mutex_lock(&checking) == 0);
    CHECK(pthread_mutex_lock(&checking) == EDEADLK);
    CHECK(pthread_mutex_unlock(&checking) == 0);
    CHECK(pthread_mutex_unlock(&checking) == EPERM);
}

/* A mutex that is held is unlocked in the section of another one. */
static void unlock_inside(void)
{
    CHECK(pthread_mutex_trylock(&other) == 0);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(pthread_mutex_unlock(&other) == 0);
    count++;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_mutex_trylock(&other) == 0 && count == 1);
}

/* A mutex that is free at the begin of a section is held at its end. */
static void locked_inside(void)
{
    pthread_mutexattr_t attributes;
    pthread_mutex_t recursive;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &attributes);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(pthread_mutex_lock(&recursive) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_mutex_destroy(&recursive) == EBUSY);
    CHECK(pthread_mutex_unlock(&recursive) == 0);
    CHECK(pthread_mutex_destroy(&recursive) == 0);
}

static void destroyed(void)
{
    pthread_mutex_t *own = malloc(sizeof *own);
    pthread_mutexattr_t attributes;
    CHECK(pthread_mutex_init(own, NULL) == 0);
    CHECK(pthread_mutex_lock(own) == 0);
    count++;
    CHECK(pthread_mutex_unlock(own) == 0);
    CHECK(pthread_mutex_destroy(own) == 0);
    CHECK(pthread_mutex_lock(own) == EINVAL);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    CHECK(pthread_mutex_init(own, &attributes) == 0);
    CHECK(pthread_mutex_lock(own) == 0 && pthread_mutex_lock(own) == EDEADLK);
    CHECK(pthread_mutex_unlock(own) == 0 && pthread_mutex_destroy(own) == 0);
    free(own);
}

/* The child of a fork inside a section holds the mutex. */
static void forked(void)
{
    int status = -1;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    count++;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(count == 1 && pthread_mutex_trylock(&mutex) == EBUSY);
        CHECK(pthread_mutex_unlock(&mutex) == 0);
        for (int time = 0; time < 5; time++)
            add();
        _exit(count == 6 ? 0 : 1);
    }
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(count == 1);
}

/* Unlocks when the C library has recorded that a thread waits. */
static void *hold(void *is_held)
{
    CHECK(pthread_mutex_trylock(&mutex) == 0);
    __atomic_store_n((int *)is_held, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&mutex.__data.__lock, __ATOMIC_SEQ_CST) != 2)
        sched_yield();
    count++;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return NULL;
}

static void held(void)
{
    pthread_t holder;
    int is_held = 0;
    CHECK(pthread_create(&holder, NULL, hold, &is_held) == 0);
    while (!__atomic_load_n(&is_held, __ATOMIC_SEQ_CST))
        sched_yield();
    add();
    CHECK(count == 2);
    CHECK(pthread_join(holder, NULL) == 0);
}

/* A thread that ends inside of a section leaves the mutex held. */
static void *end_inside(void *unused)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    count++;
    pthread_exit(unused);
}

static void ended(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, end_inside, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(count == 1 && pthread_mutex_trylock(&mutex) == EBUSY);
}

#define SECTION(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} sections[] = {
    SECTION(once), SECTION(five_times), SECTION(nested), SECTION(hand_over_hand),
    SECTION(system_call), SECTION(trylock), SECTION(timed_lock), SECTION(clock_lock),
    SECTION(timed_wait),
    SECTION(other_kinds), SECTION(unlock_inside), SECTION(locked_inside), SECTION(destroyed),
    SECTION(forked), SECTION(held), SECTION(ended),
};

int main(int argc, char **argv)
{
    for (unsigned at = 0; at < sizeof sections / sizeof sections[0]; at++)
        if (argc > 1 && strcmp(argv[1], sections[at].name) == 0) {
            sections[at].run();
            return 0;
        }
    return 2;
}
