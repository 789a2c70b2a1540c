"""How stadiums, museums, bridges, ships and festivals are written and asked about; `grammar` reads the lines."""

LANDMARKS = """
kind stadium
word roof open|partly covered|fully roofed|timber-roofed
call the stadium {name}
refer the stadium
open {name} is {a roof} stadium.
open {name} is a football stadium with {a roof} main stand.
open Rebuilt after a storm, {name} is {a roof} stadium.
alias Its sponsor calls it {alias}.
alias Long-time visitors still say {alias}.
filler Concerts are allowed four times a year.
filler The pitch is known to drain badly.
filler {A roof} stand for visiting supporters was added later.
filler Swifts nest under the beams of {it}.

relation stadium_architect person/architect
tell {s} was designed by {o}.
tell The architect was {o}.
tell {o} drew the plans.
noun the architect of {x}
noun the person who designed {x}
ask Who designed {x}?
ask Who was the architect of {x}?
find architect designed
inoun the stadium designed by {x}
iask Which stadium was designed by {x}?
ifind stadium architect
back {s} designed {o}.

relation stadium_year year
tell {s} was opened in {o}.
tell The first match was played there in {o}.
ask In what year was {x} opened?
ask When was the first match played at {x}?
find opened year
less was opened first
more was opened later

relation capacity seats
tell {s} has {o}.
tell After the last extension it offers {o}.
tell Regulations limit it to {o}.
ask How many seats does {x} have?
ask What is the capacity of {x}?
find seats
less has fewer seats
more has more seats
before Does {a} have fewer seats than {b}?

kind museum
word theme portraits|clocks|musical instruments|maps|folk costumes|fossils|puppets
article the
call the {name}
refer the museum
open The {name} is a museum with a collection of {theme}.
open The {name} is a museum devoted to {theme}.
open Small but well funded, the {name} shows {theme}.
alias Residents call it the {alias}.
alias The sign over the door still reads {alias}.
filler Admission is free on the first Sunday of the month.
filler Only a tenth of the {theme} can be shown at a time.
filler Its café is better known than its {theme}.
filler Storage rooms below {it} were flooded once.

relation museum_city city
tell {s} is in {o}.
tell It stands on a square in {o}.
tell {s} is one of the sights of {o}.
noun the city where {x} stands
noun the city that is home to {x}
ask In which city is {x}?
ask Which city is home to {x}?
find city
same Are {a} and {b} in the same city?

relation museum_architect person/architect
tell The building was designed by {o}.
tell Its architect was {o}.
tell The building is the work of {o}.
noun the architect of {x}
noun the person who designed the building of {x}
ask Who designed the building of {x}?
ask Who was the architect of {x}?
find architect building
inoun the museum designed by {x}
iask Which museum was designed by {x}?
ifind museum architect
back {s} designed the {o}.

relation museum_year year
tell {s} opened in {o}.
tell The first visitors were admitted in {o}.
tell Its doors have been open since {o}.
ask In what year did {x} open?
ask When were the first visitors admitted to {x}?
find opened year
less opened first
more opened later
before Did {a} open before {b}?

kind ship
word type cargo ship|passenger ship|icebreaker|research vessel|ferry|training ship
article the
call the {name}
refer the ship
open The {name} is {a type}.
open The {name} is {a type} with a shallow draught.
open Twice saved from the breakers, the {name} is {a type}.
alias The crew call it the {alias}.
alias It was laid down as the {alias}.
filler A fire in the galley once forced it into port.
filler Model kits of {it} are popular with collectors.
filler The wheelhouse was moved during a refit.
filler Its horn can be heard across the bay.

relation builder company/shipyard
tell {s} was built by {o}.
tell {o} laid the keel and fitted the engines.
tell The builder was {o}.
noun the shipyard that built {x}
noun the builder of {x}
ask Which shipyard built {x}?
ask Who was the builder of {x}?
find builder shipyard
same Were {a} and {b} built by the same shipyard?

relation named_after person/explorer
tell {s} is named after {o}.
tell Its name honours {o}.
tell The naming ceremony honoured {o}.
noun the person after whom {x} is named
noun the namesake of {x}
ask After whom is {x} named?
ask Who is honoured by the name of {x}?
find named after
inoun the ship named after {x}
iask Which ship is named after {x}?
ifind ship named after

relation home_port city
tell Its home port is {o}.
tell {s} is registered in {o}.
tell {s} returns to {o} every autumn.
noun the home port of {x}
noun the city where {x} is registered
ask What is the home port of {x}?
ask In which city is {x} registered?
find home port
same Do {a} and {b} have the same home port?

relation launch_year year
tell {s} was launched in {o}.
tell Sea trials were held in {o}.
tell Its first voyage was in {o}.
ask In what year was {x} launched?
ask When did {x} make its first voyage?
ask What was the launch year of {x}?
find ship launched
less was launched first
more was launched later
before Was {a} launched before {b}?

kind festival
word scene puppet theatre|brass bands|street food|choral singing|short films|folk dance
article the
call the {name}
refer the festival
open The {name} is an annual festival of {scene}.
open The {name} is a three-day celebration of {scene}.
open Loud and good-humoured, the {name} is a festival of {scene}.
alias Regulars call it {alias}.
alias For some years it was announced as {alias}.
filler Tickets are sold out within hours.
filler Rain has stopped {it} only once.
filler Its parade ends with {scene} by the water.
filler Volunteers run most of the stages.

relation festival_city city
tell {s} is held in {o}.
tell It takes over the centre of {o} for three days.
tell {o} has hosted {it} from the beginning.
noun the city where {x} is held
noun the host city of {x}
ask In which city is {x} held?
ask What is the host city of {x}?
find host city
same Are {a} and {b} held in the same city?

relation festival_founder person/singer
tell {s} was started by {o}.
tell The idea came from {o}.
tell {o} organised the first edition.
noun the founder of {x}
noun the person who started {x}
ask Who started {x}?
ask Who organised the first edition of {x}?
find started by
inoun the festival started by {x}
iask Which festival was started by {x}?
ifind festival started by
back {s} started the {o}.

relation festival_year year
tell {s} was first held in {o}.
tell The first edition took place in {o}.
tell {s} has been held since {o}.
ask In what year was {x} first held?
ask When did the first edition of {x} take place?
ask What was the first year of {x}?
find festival held since
less was first held earlier
more was first held later
before Was {a} first held before {b}?

kind bridge
word build suspension|arch|cantilever|truss|cable-stayed|stone
article the
call the {name}
refer the bridge
open The {name} is {a build} bridge.
open The {name} is {a build} bridge with a walkway on either side.
open Painted grey since the last repair, the {name} is {a build} bridge.
alias Locals call it the {alias}.
alias It was planned under the name {alias}.
filler Lorries have been banned from it for some time.
filler Its lamps were copied from a design for a theatre.
filler Photographers like the view from its eastern end.
filler The toll house beside {it} now holds a bakery.

relation crosses river
tell {s} crosses {o}.
tell It carries a road over {o}.
tell {s} spans {o}.
noun the river that {x} crosses
noun the river spanned by {x}
ask Which river does {x} cross?
ask What river is spanned by {x}?
find crosses river
same Do {a} and {b} cross the same river?

relation engineer person/civil engineer
tell {s} was designed by {o}.
tell The engineer was {o}.
tell {o} drew the plans and supervised the work.
noun the engineer of {x}
noun the person who designed {x}
ask Who designed {x}?
ask Who was the engineer of {x}?
find engineer
inoun the bridge designed by {x}
iask Which bridge was designed by {x}?
ifind bridge engineer
back {s} designed the {o}.
same Were {a} and {b} designed by the same engineer?

relation bridge_year year
tell {s} was opened in {o}.
tell Traffic has used it since {o}.
tell The ribbon was cut in {o}.
ask In what year was {x} opened?
ask Since when has traffic used {x}?
find opened year
less was opened first
more was opened later
before Was {a} opened before {b}?

relation span metres
tell Its main span measures {o}.
tell {s} has a main span of {o}.
ask How long is the main span of {x}?
ask What is the main span of {x}?
find main span
less has the shorter span
more has the longer span
"""
