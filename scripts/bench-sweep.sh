# The rows sweep, refuse, refill and large of scripts/bench-memory, which sources this: what corewise
# keeps at every limit, number of event loops and value size, beside memcached. The checks are those
# of `corewise load --oracle`.
# shellcheck shell=bash disable=SC2154 # the variables of bench-memory

# Length of the keys of `corewise load --oracle`.
key_bytes=12
# The resident set may be this share of the limit, and this many KiB.
rss_share=1.05 rss_kib_beyond=8192

sweep_limits() {
    if [ -n "$limits" ]; then
        echo "${limits//,/ }"
    elif [ $quick = 1 ]; then
        echo 2 16 64
    else
        echo 1 2 4 16 64 256 1024
    fi
}

sweep_threads() { # megabytes
    if [ -n "$thread_list" ]; then
        echo "${thread_list//,/ }"
    elif [ $quick = 1 ]; then
        case $1 in 2) echo 1 8 ;; 16) echo 1 16 ;; *) echo 1 ;; esac
    elif [ "$1" -le 64 ]; then
        echo 1 4 16
    else
        echo 1 4
    fi
}

# Sizes of values from 50 bytes to a quarter of the limit, then mixes, shifts and growth. A value of
# more than 16 MB takes seconds to send through a window of one.
sweep_sizes() { # megabytes
    local quarter=$(($1 << 18)) all size
    if [ -n "$sizes" ]; then
        echo "$sizes"
        return
    fi
    all=(50 100 200 500 1000 2000 4000 5000 6000 8000 10000 12000 14000 16000 20000 30000 50000 70000
        100000 200000 500000 1000000 2000000 5000000 10000000)
    [ $quick = 0 ] || all=(50 500 2000 5000 8000 12000 20000 60000 200000)
    for size in "${all[@]}"; do
        [ "$size" -ge $((quarter * 9 / 10)) ] || echo "$size"
    done
    [ "$quarter" -gt 16000000 ] && quarter=16000000
    echo "$quarter 50+8000 8000,50 50..$quarter 50-$((quarter < 200000 ? quarter : 200000))"
    [ $quick = 1 ] || echo "200+$quarter 50,8000 $quarter,200 $quarter..50"
}

largest_size() { # sizes
    tr -c '0-9' '\n' <<<"$1" | sort -n | tail -n 1
}

# The -I for values of the sizes: memcached's default where it is enough and allowed.
item_limit() { # megabytes sizes
    local need half=$(($1 << 9)) kib=1024
    need=$(($(largest_size "$2") / 1000 + 16))
    # Above the default memcached takes multiples of 512 KiB only.
    [ "$need" -le "$kib" ] || kib=$(((need + need / 32 + 511) / 512 * 512))
    [ "$kib" -le "$half" ] || kib=$half
    echo "${kib}k"
}

# The smallest live share that is allowed: less than the usual where only few whole items fit.
live_bar() { # megabytes sizes
    local bar=0.60
    [ "$1" -lt 16 ] || bar=0.80
    awk -v limit="$(($1 << 20))" -v size="$2" -v key=$key_bytes -v bar=$bar 'BEGIN {
        if (size ~ /^[0-9]+$/) {
            whole = int(limit / (size + key)) * (size + key) / limit
            if (whole < bar) bar = whole
        }
        printf "%.2f", int(bar * 100) / 100
    }'
}

# Runs one check on one server; the report goes to the file.
check() { # file server check megabytes threads sizes [server options...]
    local out=$1 which=$2 what=$3 megabytes=$4 loops=$5 values=$6 rc options
    shift 6
    options=(-I "$(item_limit "$megabytes" "$values")" "$@")
    case $which in
        corewise) start_corewise "${megabytes}m" "$loops" "$engine" "${options[@]}" || return 1 ;;
        *) start_memcached "$megabytes" "$loops" "${options[@]}" || return 1 ;;
    esac
    load "$out" --oracle "$what" --limit "$megabytes" --value-size "$values" --pipeline 512 \
        --turnovers "$sweep_turnovers" --connections $((loops > 4 ? 2 * loops : 8)) --reply-timeout-ms 60000
    rc=$?
    # memcached takes a second to end by itself.
    stop_server KILL
    return $rc
}

# Calls a function for each cell: name, megabytes, threads, sizes.
each_cell() { # function
    local limit loops values name
    for limit in $(sweep_limits); do
        for loops in $(sweep_threads "$limit"); do
            for values in $(sweep_sizes "$limit"); do
                name="m$limit t$loops $values"
                [ -z "$cells" ] || [[ $name =~ $cells ]] || continue
                "$1" "$name" "$limit" "$loops" "$values" || status=1
            done
        done
    done
}

sweep_head() { # file columns
    [ $headed = 0 ] || return 0
    headed=1
    machine "$1" oracle.machine
    echo "servers: corewise $(get "$1" oracle.identity.version), engine ${engine:-default}," \
        "$(memcached -V 2>/dev/null || echo 'no memcached'); the same -m, -t and -I"
}

have_memcached() {
    [ $beside = 1 ] || return 1
    command -v memcached >/dev/null && return 0
    say "memcached is not on PATH: corewise alone"
    beside=0
    return 1
}

# Counts a cell; the worst is the one with the smallest figure.
counted=0 missed=0 worst='' worst_figure=''
count_cell() { # name figure ok|MISSED
    counted=$((counted + 1))
    [ "$3" = ok ] || missed=$((missed + 1))
    if [ -z "$worst" ] || awk -v a="$2" -v b="$worst_figure" 'BEGIN { exit !(a < b) }'; then
        worst=$1 worst_figure=$2
    fi
}

end_of_cells() { # row meaning-of-figure
    echo "$1: $missed of $counted cells missed; the worst: ${worst:-none}, $2 ${worst_figure:-none}"
    counted=0 missed=0 worst='' worst_figure=''
}

# The figures of a fill: min live, how often the limit was written then, live at the end, MiB.
fill_figures() { # file
    awk '
        { v[$1] = $2 }
        END {
            f = "oracle.fill."
            printf "%.3f at %.1f, %.3f, %.1f", v[f "min_live"], v[f "min_live_at"], v[f "end_live"],
                v[f "peak_rss_kib"] / 1024
            if (v[f "refused"] > 0) printf ", %d refused", v[f "refused"]
            if (v[f "sample_error"] > 0.02) printf ", counters off by %.2f", v[f "sample_error"]
        }' "$1"
}

sweep_cell() { # name megabytes threads sizes
    local ours=$work/ours theirs=$work/theirs bar rss_bar other=- verdict live rss
    check "$ours" corewise fill "$2" "$3" "$4" || { echo "$1 | FAILED"; return 1; }
    sweep_head "$ours"
    if have_memcached; then
        other=FAILED
        check "$theirs" memcached fill "$2" "$3" "$4" && other=$(fill_figures "$theirs")
    fi
    bar=$(live_bar "$2" "$4")
    rss_bar=$(awk -v m="$2" -v s=$rss_share -v k=$rss_kib_beyond 'BEGIN { printf "%.1f", m * s + k / 1024 }')
    live=$(get "$ours" oracle.fill.min_live) rss=$(get "$ours" oracle.fill.peak_rss_kib)
    verdict=$(awk -v l="$live" -v e="$(get "$ours" oracle.fill.end_live)" -v b="$bar" -v r="$rss" -v q="$rss_bar" \
        'BEGIN { print (l >= b && e >= b && r / 1024 <= q) ? "ok" : "MISSED" }')
    echo "$1 | $(fill_figures "$ours") | $other | >= $bar, <= $rss_bar | $verdict"
    count_cell "$1" "$(awk -v l="$live" -v b="$bar" -v r="$rss" -v q="$rss_bar" 'BEGIN {
        live = l / b; rss = r > 0 ? q / (r / 1024) : 1; printf "%.3f", live < rss ? live : rss }')" "$verdict"
}

row_sweep() {
    echo "cell | smallest live share at how many limits written, at the end, largest resident MiB |" \
        "memcached's | bars | verdict"
    each_cell sweep_cell
    end_of_cells sweep "figure over bar"
}

refuse_figures() { # file
    awk '
        { v[$1] = $2 }
        END {
            f = "oracle.refuse."
            printf "%s, %d of %d lost, failed incr %d decr %d touch %d overwrite %d of %d, %d lost then",
                (f "first_refusal" in v) ? sprintf("%.3f", v[f "first_refusal"]) : "never",
                v[f "lost"], v[f "stored"], v[f "incr_failed"], v[f "decr_failed"], v[f "touch_failed"],
                v[f "overwrites_failed"], v[f "overwrites"], v[f "lost_later"]
        }' "$1"
}

refuse_cell() { # name megabytes threads sizes
    local ours=$work/ours theirs=$work/theirs bar other=- figures
    check "$ours" corewise refuse "$2" "$3" "$4" -M || { echo "$1 | FAILED"; return 1; }
    sweep_head "$ours"
    if have_memcached; then
        other=FAILED
        check "$theirs" memcached refuse "$2" "$3" "$4" -M && other=$(refuse_figures "$theirs")
    fi
    bar=$(live_bar "$2" "$4")
    # The share of stored items that are there, if refusals begin late enough.
    figures=$(awk -v b="$bar" '
        { v[$1] = $2 }
        END {
            f = "oracle.refuse."
            lost = v[f "lost"] + v[f "lost_later"]
            failed = v[f "incr_failed"] + v[f "decr_failed"] + v[f "touch_failed"] + v[f "overwrites_failed"]
            first = (f "first_refusal" in v) ? v[f "first_refusal"] : 0
            kept = v[f "stored"] > 0 ? 1 - lost / v[f "stored"] : 0
            printf "%.3f %s", kept * (first < b ? first / b : 1), (lost + failed == 0 && first >= b ? "ok" : "MISSED")
        }' "$ours")
    echo "$1 | $(refuse_figures "$ours") | $other | >= $bar, no loss, no failure | ${figures#* }"
    count_cell "$1" "${figures% *}" "${figures#* }"
}

row_refuse() {
    echo "cell (-M) | live share at the first refusal, lost items, failures when full | memcached's | bars | verdict"
    each_cell refuse_cell
    end_of_cells refuse "items kept, times first refusal over bar"
}

refill_figures() { # file
    awk '
        { v[$1] = $2 }
        END {
            f = "oracle.refill."
            printf "%d of %d survive", v[f "found"], v[f "stored"]
            if (v[f "refused"] > 0) printf ", %d refused", v[f "refused"]
            if (v[f "flushed_found"] > 0) printf ", %d FLUSHED ITEMS FOUND", v[f "flushed_found"]
        }' "$1"
}

refill_cell() { # name megabytes threads sizes
    local ours=$work/ours theirs=$work/theirs other=- figures
    check "$ours" corewise refill "$2" "$3" "$4" || { echo "$1 | FAILED"; return 1; }
    sweep_head "$ours"
    if have_memcached; then
        other=FAILED
        check "$theirs" memcached refill "$2" "$3" "$4" && other=$(refill_figures "$theirs")
    fi
    figures=$(awk '
        { v[$1] = $2 }
        END {
            f = "oracle.refill."
            ok = v[f "found"] == v[f "stored"] && v[f "flushed_found"] + v[f "refused"] == 0
            printf "%.3f %s", (v[f "stored"] > 0 ? v[f "found"] / v[f "stored"] : 0), (ok ? "ok" : "MISSED")
        }' "$ours")
    echo "$1 | $(refill_figures "$ours") | $other | all | ${figures#* }"
    count_cell "$1" "${figures% *}" "${figures#* }"
}

row_refill() {
    local limits=${limits:-2,16,64,256,1024} thread_list=${thread_list:-1,4} sizes=${sizes:-100 200 2000 8000 30000 100000}
    [ $quick = 0 ] || limits=16,64 thread_list=1
    echo "cell | items stored right after flush_all | memcached's | bar | verdict"
    each_cell refill_cell
    end_of_cells refill "share that survives"
}

# CPU seconds for each GiB of values, the median of the files.
cpu_per_gib() { # files...
    local file
    for file; do
        awk '{ v[$1] = $2 } END {
            printf "%.4f\n", v["oracle.fill.cpu_ms"] / 1000 / v["oracle.fill.cpu_bytes"] * 1073741824 }' "$file"
    done | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

large_cell() { # size
    local size=$1 round rounds=3 ours=() theirs=() a b ratio verdict
    [ $quick = 0 ] || rounds=1
    for round in $(seq $rounds); do
        check "$work/ours.$round" corewise fill 256 "$threads" "$size" || return 1
        ours+=("$work/ours.$round")
        check "$work/theirs.$round" memcached fill 256 "$threads" "$size" || return 1
        theirs+=("$work/theirs.$round")
    done
    sweep_head "${ours[0]}"
    a=$(cpu_per_gib "${ours[@]}") b=$(cpu_per_gib "${theirs[@]}")
    ratio=$(awk -v a="$a" -v b="$b" 'BEGIN { printf "%.3f", a / b }')
    verdict=$(verdict "$ratio" 1.0 at-most)
    echo "large m256 t$threads $size | CPU s per GiB $a, memcached $b, ratio $ratio | $verdict"
    count_cell "$size" "$(awk -v r="$ratio" 'BEGIN { printf "%.3f", 1 / r }')" "${verdict##* }"
}

# Two GiB of sets of each size while evicting.
row_large() {
    local size sweep_turnovers=9 sizes=${sizes:-10000 30000 100000 200000 500000 1000000}
    if ! have_memcached; then
        say "SKIPPED: large compares with memcached"
        return 0
    fi
    for size in $sizes; do
        large_cell "$size" || { echo "large $size | FAILED"; status=1; stop_server KILL; }
    done
    end_of_cells large "memcached's CPU time over corewise's"
}
