"""How films, books, bands and albums are written and asked about; `grammar` reads the lines."""

WORKS = """
kind film
word genre drama|thriller|comedy|mystery|war film|road movie|romance|satire|courtroom drama
word mood quiet|tense|wistful|playful|sombre|restless|hypnotic
call the film {name}
refer the film
open {name} is {a mood} {genre}.
open {name} is {a genre} remembered for its {mood} closing scene.
open Shot almost entirely on location, {name} is {a genre}.
alias {s} was distributed abroad as {alias}.
alias Abroad, {it} is better known as {alias}.
filler Critics praised the {mood} photography and found the plot thin.
filler {s} did poorly at first but gained admirers through late screenings.
filler A restored print of {it} toured small cinemas many years afterwards.
filler The {mood} opening sequence is often shown to students.

relation director person/film director
tell {s} was directed by {o}.
tell {o} directed {it}.
tell The director was {o}, who also appears in one scene.
noun the director of {x}
noun the person who directed {x}
ask Who directed {x}?
ask Who was the director of {x}?
ask {x} was directed by whom?
find director
inoun the film directed by {x}
iask Which film was directed by {x}?
iask What film did {x} direct?
ifind film director
back {s} directed the film {o}.
same Were {a} and {b} directed by the same person?
same Do {a} and {b} have the same director?

relation film_year year
tell {s} was released in {o}.
tell {s} had its premiere in {o}.
tell Cinemas first showed {it} in {o}.
ask In what year was {x} released?
ask When did {x} have its premiere?
ask What was the release year of {x}?
find premiere released
less was released first
more was released later
before Was {a} released before {b}?
before Did {a} reach cinemas earlier than {b}?
same Were {a} and {b} released in the same year?

relation based_on book
tell The screenplay is based on the book {o}.
tell {s} adapts the book {o}.
tell The story was taken, with many cuts, from the book {o}.
noun the book that {x} is based on
noun the book adapted as {x}
ask Which book is {x} based on?
ask What book was adapted as {x}?
find based on book
inoun the film adapted from {x}
iask Which film was adapted from {x}?
iask What film is based on {x}?
ifind film based on

relation composer person/composer
tell The music was written by {o}.
tell {o} composed the score.
tell Its score is the work of {o}.
noun the composer of the score of {x}
noun the person who wrote the music for {x}
ask Who composed the score of {x}?
ask Who wrote the music for {x}?
find score composer music
inoun the film whose score was composed by {x}
iask Which film has a score composed by {x}?
ifind film score
back {s} composed the score of {o}.
same Was the music of {a} and {b} written by the same composer?

relation film_studio company/film studio
tell {s} was produced by {o}.
tell The production company was {o}.
tell {o} financed and produced {it}.
noun the production company of {x}
noun the studio that produced {x}
ask Which company produced {x}?
ask What was the production company of {x}?
find film produced
same Were {a} and {b} produced by the same company?

relation running_time minutes
tell {s} runs for {o}.
tell Its running time is {o}.
ask How long does {x} run?
ask What is the running time of {x}?
find running time minutes
less is shorter
more runs longer
before Is {a} shorter than {b}?

kind book
word genre novel|family saga|historical novel|mystery novel|coming-of-age novel|satirical novel
word mood bleak|tender|comic|unsettling|lyrical|leisurely
call the book {name}
refer the book
open {name} is {a mood} {genre}.
open {name} is {a genre} told by several narrators.
open Part memoir and part invention, {name} is {a genre}.
alias {s} first appeared in instalments as {alias}.
alias In translation {it} is usually called {alias}.
filler Reviewers admired its {mood} tone and complained about the ending.
filler {s} is often set for examination in schools.
filler The manuscript of {it} was long thought lost.
filler Its {mood} middle chapters are the most widely quoted.

relation author person/novelist
tell {s} was written by {o}.
tell {o} wrote {it} in under a year.
tell Its author is {o}.
noun the author of {x}
noun the person who wrote {x}
ask Who wrote {x}?
ask Who is the author of {x}?
ask {x} was written by whom?
find author
inoun the book written by {x}
iask Which book was written by {x}?
iask What book did {x} write?
ifind book author
back {s} wrote the book {o}.
same Were {a} and {b} written by the same author?

relation book_year year
tell {s} was published in {o}.
tell {s} first appeared in print in {o}.
tell Readers first saw {it} in {o}.
ask In what year was {x} published?
ask When did {x} first appear in print?
ask What was the year of publication of {x}?
find published year
less was published first
more was published later
before Was {a} published before {b}?
same Were {a} and {b} published in the same year?

relation publisher company/publishing house
tell {s} was published by {o}.
tell {o} brought out the first edition.
tell Its publisher was {o}.
noun the publisher of {x}
noun the company that published {x}
ask Which company published {x}?
ask Who was the publisher of {x}?
find publisher
same Did the same company publish {a} and {b}?

relation set_in city
tell The story is set in {o}.
tell {s} takes place in and around {o}.
tell Most of the action unfolds in {o}.
noun the city in which {x} is set
noun the setting of {x}
ask In which city is {x} set?
ask What city is the setting of {x}?
find setting city
same Are {a} and {b} set in the same city?

relation pages pages
tell The first edition ran to {o}.
tell {s} is {o} long.
ask How many pages did the first edition of {x} have?
ask What is the page count of {x}?
find pages first edition
less is shorter
more has more pages

kind band
word genre folk rock|post-punk|chamber pop|synth-pop|blues rock|garage rock|jazz fusion
call the band {name}
refer the band
open {name} is {a genre} band.
open {name} is a group that plays {genre}.
open Usually counted as {genre}, {name} is a band with a changing line-up.
alias {s} has also performed under the name {alias}.
alias Early posters announce {it} as {alias}.
filler Their concerts rarely last longer than an hour.
filler {s} toured small halls for years before anybody wrote about it.
filler Several members of {it} left and came back again.
filler Later groups named {it} as an influence on their own {genre}.

relation formed_in city
tell {s} was formed in {o}.
tell {s} came together in {o}.
tell The members met in {o}, where {it} gave its first concert.
noun the city where {x} was formed
noun the home city of {x}
ask In which city was {x} formed?
ask What city does {x} come from?
ask What is the home city of {x}?
find formed in city
same Were {a} and {b} formed in the same city?

relation formed_year year
tell {s} was formed in {o}.
tell The first rehearsal took place in {o}.
tell {s} has existed since {o}.
ask In what year was {x} formed?
ask Since what year has {x} existed?
ask What is the founding year of {x}?
find formed existed
less was formed first
more was formed later
before Was {a} formed before {b}?

relation vocalist person/singer
tell The lead singer is {o}.
tell {o} sings lead vocals.
tell {s} is fronted by {o}.
noun the lead singer of {x}
noun the person who fronts {x}
ask Who is the lead singer of {x}?
ask Who fronts {x}?
find lead singer
inoun the band fronted by {x}
iask Which band is fronted by {x}?
iask {x} is the lead singer of which band?
ifind band lead singer
back {s} sang with {o}.

kind album
word genre concept album|live album|double album|studio album|collection of ballads
word mood warm|sparse|noisy|dreamy|brooding|cheerful
call the album {name}
refer the album
open {name} is {a mood} {genre}.
open {name} is {a genre} with a {mood} sound.
open Recorded in a few weeks, {name} is {a genre}.
alias {s} was reissued as {alias}.
alias Collectors know {it} as {alias}.
filler The {mood} second side was often played on late-night radio.
filler {s} sold slowly and was out of print for years.
filler A remastered edition of {it} adds three early takes.
filler The sleeve shows an empty railway platform at dusk.

relation performer band
tell {s} was recorded by {o}.
tell {o} released {it} after a long tour.
tell It is a record by {o}.
noun the band that recorded {x}
noun the group behind {x}
ask Which band recorded {x}?
ask Which group released {x}?
ask {x} is a record by which band?
find recorded by band
inoun the album recorded by {x}
iask Which album was recorded by {x}?
ifind album recorded by
same Were {a} and {b} recorded by the same band?

relation label company/record label
tell {s} was issued by {o}.
tell It came out on {o}.
tell The label was {o}.
noun the label that issued {x}
noun the record label of {x}
ask Which label issued {x}?
ask On which record label did {x} come out?
find label
same Did {a} and {b} come out on the same label?

relation album_year year
tell {s} came out in {o}.
tell Shops first stocked {it} in {o}.
tell The release date was pushed back to {o}.
ask In what year did {x} come out?
ask When was {x} first in the shops?
ask What was the release year of {x}?
find release year
less came out first
more came out later
before Did {a} come out before {b}?

relation producer person/record producer
tell {s} was produced by {o}.
tell {o} produced the sessions.
tell At the mixing desk sat the producer {o}.
noun the producer of {x}
noun the person who produced {x}
ask Who produced {x}?
ask Who was the producer of {x}?
find producer
inoun the album produced by {x}
iask Which album was produced by {x}?
ifind album producer
back {s} produced the album {o}.
same Did the same person produce {a} and {b}?

relation recorded_in city
tell The recordings were made in {o}.
tell The sessions took place in {o}.
tell {s} was taped in a former church in {o}.
noun the city where {x} was recorded
noun the recording place of {x}
ask In which city was {x} recorded?
ask Where did the sessions for {x} take place?
ask What city was the recording place of {x}?
find recordings sessions city
same Were {a} and {b} recorded in the same city?
"""
